//! The calls for one plugin, in order.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::Plugin;

type Name = (String, String);

/// Two sockets may register the same name; their handler sees one call at a time.
#[derive(Clone, Default)]
pub(crate) struct Names {
    turns: Arc<Mutex<HashMap<Name, Arc<tokio::sync::Mutex<()>>>>>,
}

impl Names {
    /// Waits until no other call for a plugin of this type and name runs. Cancel safe.
    pub(crate) async fn turn(&self, plugin: &Plugin) -> OwnedMutexGuard<()> {
        let name = (plugin.plugin_type.clone(), plugin.name.clone());
        let turn = {
            let mut turns = self.turns.lock();
            // Names that nobody waits for are forgotten, so a plugin cannot fill the memory with names.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(name).or_default().clone()
        };
        turn.lock_owned().await
    }
}
