//! The faults of plugins, and of the state files.

use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;

use super::host::SimulatedMachine;
use crate::device_plugin::{DevicePluginFault, DevicePluginMethod, DevicePluginTrouble};
use crate::dra_driver::{DraFault, DraMethod, DraTrouble};
use crate::memory_cri::hash;
use crate::simulation::FaultPlan;
use crate::simulation::driver::{Act, Driver};

/// How many kinds of faults a plugin has.
const KINDS: f64 = 4.0;
/// How long a call to a plugin may be slow.
const SLOW: Duration = Duration::from_secs(3);
/// How long the driver of claims is away when it restarts.
const AWAY: [Duration; 3] = [
    Duration::from_secs(5),
    Duration::from_secs(60),
    Duration::from_secs(1200),
];

impl SimulatedMachine {
    /// This fraction of the calls to its plugins fails, and agents crash at this fraction of writes of their state files.
    pub(in crate::simulation) fn befall(&self, faults: &FaultPlan, seed: u64) {
        self.files.set_crash_rate(faults.state_crashes);
        let rate = faults.plugin_calls / KINDS;
        if rate <= 0.0 {
            return;
        }
        let fails = || (Code::Internal, "drawn".to_owned());
        for (number, plugin) in self.plugins.iter().enumerate() {
            for method in [
                DevicePluginMethod::Allocate,
                DevicePluginMethod::PreferredAllocation,
                DevicePluginMethod::PreStart,
                DevicePluginMethod::Options,
            ] {
                let (code, text) = fails();
                let troubles = [
                    DevicePluginTrouble::Fails(code, text),
                    DevicePluginTrouble::Hangs,
                    DevicePluginTrouble::Slow(SLOW),
                    DevicePluginTrouble::Dies,
                ];
                for trouble in troubles {
                    let seed = hash(seed, format!("{number} {method:?} {trouble:?}"));
                    plugin.add_fault(DevicePluginFault::new(method, trouble).rate(rate, seed));
                }
            }
        }
        for method in [DraMethod::Prepare, DraMethod::Unprepare] {
            let (code, text) = fails();
            let troubles = [
                DraTrouble::Fails(code, text),
                DraTrouble::AnswerLost,
                DraTrouble::HangsAfterWork,
                DraTrouble::LeavesOut,
            ];
            for trouble in troubles {
                let seed = hash(seed, format!("{method:?} {trouble:?}"));
                self.driver
                    .fault(DraFault::on(method).rate(rate, seed).then(trouble));
            }
        }
    }

    /// All plugins are well again.
    pub(in crate::simulation) fn end_faults(&self) {
        self.files.set_crash_rate(0.0);
        self.driver.clear_faults();
        self.serve_claims(true);
        for plugin in self.plugins.iter() {
            plugin.clear_faults();
            for device in plugin.device_ids() {
                plugin.set_healthy(&device, true);
            }
        }
    }
}

impl Driver {
    /// A device fails or works again, or a plugin or the driver of claims restarts.
    pub(in crate::simulation) fn change_devices(&mut self) {
        let Some(number) = self.any_number() else { return };
        let (Some(machine), name) = (
            self.nodes[number].machine.clone(),
            self.nodes[number].name.clone(),
        ) else {
            return;
        };
        let plugin = &machine.plugins[self.rng.usize(..machine.plugins.len())];
        match self.rng.u8(..4) {
            0 => {
                self.journal
                    .note(format!("{name} the plugin of {} crashes", plugin.resource()));
                plugin.crash();
            }
            1 => {
                // A DaemonSet would start it again, so it comes back in quiet time, too.
                let length = AWAY[self.rng.usize(..AWAY.len())];
                self.journal
                    .note(format!("{name} the driver of claims is away for {length:?}"));
                machine.serve_claims(false);
                self.plan_at(Act::ServeClaims(number), Instant::now() + length);
            }
            what => {
                let ids = plugin.device_ids();
                let id = &ids[self.rng.usize(..ids.len())];
                let how = if what == 2 { "fails" } else { "works" };
                self.journal
                    .note(format!("{name} {id} of {} {how}", plugin.resource()));
                plugin.set_healthy(id, what == 3);
            }
        }
    }
}
