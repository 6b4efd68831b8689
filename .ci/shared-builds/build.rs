//! Empty: a package has build dependencies for its build script only.

fn main() {}
