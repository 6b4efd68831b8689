//! What node, pods and containers use: the summary of a kubelet, the metrics of cAdvisor, the resource metrics.
