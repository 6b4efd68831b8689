//! What stands between the manager and the two services: calls are counted, and calls that the runtime lacks are made once.

pub(crate) mod instrumented;
pub(crate) mod missing_calls;
