//! From what the runtime says to the API status of a pod, and from there to any sink
