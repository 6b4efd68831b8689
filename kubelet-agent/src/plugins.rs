//! The plugins that appear in `plugins_registry`: CSI drivers and device plugins.

use std::sync::Arc;

use kubelet_plugins::{PluginHandler, PluginWatcher};
use parking_lot::Mutex;

use crate::Result;
use crate::context::Context;
use crate::tasks::Tasks;

/// The type of the plugins that it uses, and the handler.
type Handler = (&'static str, Arc<dyn PluginHandler>);

/// Who uses the plugins of which type.
#[derive(Clone, Default)]
pub(crate) struct PluginRoom {
    handlers: Arc<Mutex<Vec<Handler>>>,
}

impl PluginRoom {
    pub(crate) fn add(&self, plugin_type: &'static str, handler: Arc<dyn PluginHandler>) {
        self.handlers.lock().push((plugin_type, handler));
    }

    /// Adds the watcher. All handlers must have been added.
    pub(crate) fn start(self, context: &Context, tasks: &mut Tasks) -> Result<()> {
        let handlers = std::mem::take(&mut *self.handlers.lock());
        if handlers.is_empty() {
            return Ok(());
        }
        let mut watcher = PluginWatcher::builder(context.root_dir.path().join("plugins_registry"));
        for (plugin_type, handler) in handlers {
            watcher = watcher.handler(plugin_type, handler);
        }
        let watcher = watcher.build()?;
        tasks.add("plugin watcher", |shutdown| watcher.run(shutdown));
        Ok(())
    }
}
