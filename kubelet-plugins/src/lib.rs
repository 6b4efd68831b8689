//! The plugin watcher of a kubelet (`pkg/kubelet/pluginmanager`).
