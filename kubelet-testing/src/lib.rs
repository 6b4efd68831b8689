//! Fakes that behave: test a Kubernetes node agent without a cluster, in virtual time
