//! Pods from files, HTTP and the API server, merged into one ordered stream of updates
