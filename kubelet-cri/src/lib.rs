//! The Kubernetes Container Runtime Interface: messages, client, server, a runtime manager and a process runtime
