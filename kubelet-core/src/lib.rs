//! The words, traits and pod lifecycle engine of a kubelet, without gRPC, HTTP or an API client
