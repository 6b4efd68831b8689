//! Tests of the managers through the public API.

mod recorded;
