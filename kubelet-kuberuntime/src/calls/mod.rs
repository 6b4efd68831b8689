//! The layer between the manager and the two services: it counts calls, and makes a call that the runtime does not
//! implement only once.

pub(crate) mod instrumented;
pub(crate) mod missing_calls;
