//! What drivers report about the health of their devices, and for how long it is valid: state without I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::health_v1alpha1::{DeviceHealth, HealthStatus};

/// How long a report about a device is valid, if it does not say so itself (`DefaultHealthTimeout`).
pub const DEFAULT_HEALTH_TIMEOUT: Duration = Duration::from_secs(30);

/// How many bytes of a message are kept (`ResourceHealthMessageMaxLength`).
const LONGEST_MESSAGE: usize = 1024;

/// How a device is (`state.DeviceHealthStatus`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Health {
    Healthy,
    Unhealthy,
    /// Nobody reported it, or too long ago.
    #[default]
    Unknown,
}

impl Health {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Unhealthy => "Unhealthy",
            Self::Unknown => "Unknown",
        }
    }

    pub(super) fn of(text: &str) -> Self {
        match text {
            "Healthy" => Self::Healthy,
            "Unhealthy" => Self::Unhealthy,
            _ => Self::Unknown,
        }
    }
}

/// The pool and the name of a device.
pub(super) type DeviceName = (String, String);

/// What was reported about a device (`state.DeviceHealth`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) health: Health,
    pub(super) message: String,
    pub(super) timeout: Duration,
    pub(super) updated: Timestamp,
    /// From then on, nothing is known.
    pub(super) expires: Instant,
}

/// The same moment of both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) instant: Instant,
    pub(super) wall: Timestamp,
}

/// What a change means for others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// The devices for which statuses show something else now.
    pub(super) devices: BTreeSet<DeviceName>,
    pub(super) must_write: bool,
}

/// The devices of all drivers (`healthInfoCache`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HealthCache {
    pub(super) drivers: BTreeMap<String, BTreeMap<DeviceName, Known>>,
}

impl HealthCache {
    /// The health of a device now, and the message about it (`getHealthInfo`).
    pub(super) fn get(&self, driver: &str, device: &DeviceName, now: Instant) -> (Health, &str) {
        let known = self.drivers.get(driver).and_then(|devices| devices.get(device));
        known.map_or((Health::Unknown, ""), |known| known.at(now))
    }

    /// A driver reports devices. It need not report all (`updateHealthInfo`).
    pub(super) fn update(&mut self, driver: &str, report: Vec<DeviceHealth>, now: Now) -> Changes {
        let mut changes = Changes::default();
        let devices = self.drivers.entry(driver.to_owned()).or_default();
        for reported in report {
            let (device, known) = read(reported, now);
            let before = devices.insert(device.clone(), known.clone());
            if before
                .as_ref()
                .map_or((Health::Unknown, ""), |before| before.at(now.instant))
                != known.at(now.instant)
            {
                changes.devices.insert(device);
            }
            changes.must_write |= before.is_none_or(|before| !before.says_the_same(&known));
        }
        changes
    }

    /// Forgets reports that are no longer valid. Returns the devices of each driver for which statuses show something else now.
    pub(super) fn expire(&mut self, now: Now) -> BTreeMap<String, BTreeSet<DeviceName>> {
        let mut expired: BTreeMap<String, BTreeSet<DeviceName>> = BTreeMap::new();
        for (driver, devices) in &mut self.drivers {
            for (device, known) in devices {
                if known.says_something() && known.expires <= now.instant {
                    known.health = Health::Unknown;
                    known.message.clear();
                    known.updated = now.wall;
                    expired.entry(driver.clone()).or_default().insert(device.clone());
                }
            }
        }
        expired
    }

    /// When the next report is no longer valid.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        let all = self.drivers.values().flat_map(BTreeMap::values);
        all.filter(|known| known.says_something())
            .map(|known| known.expires)
            .min()
    }

    /// Forgets all that a driver reported (`clearDriver`).
    pub(super) fn clear(&mut self, driver: &str, now: Instant) -> Changes {
        let Some(devices) = self.drivers.remove(driver) else {
            return Changes::default();
        };
        let shown = devices
            .into_iter()
            .filter(|(_, known)| known.at(now) != (Health::Unknown, ""));
        Changes {
            devices: shown.map(|(device, _)| device).collect(),
            must_write: true,
        }
    }
}

impl Known {
    fn at(&self, now: Instant) -> (Health, &str) {
        match now < self.expires {
            true => (self.health, &self.message),
            false => (Health::Unknown, ""),
        }
    }

    fn says_something(&self) -> bool {
        self.health != Health::Unknown || !self.message.is_empty()
    }

    fn says_the_same(&self, other: &Self) -> bool {
        (self.health, &self.message, self.timeout) == (other.health, &other.message, other.timeout)
    }
}

/// `buildDeviceHealth`
fn read(reported: DeviceHealth, now: Now) -> (DeviceName, Known) {
    let health = match reported.health() {
        HealthStatus::Healthy => Health::Healthy,
        HealthStatus::Unhealthy => Health::Unhealthy,
        HealthStatus::Unknown => Health::Unknown,
    };
    let seconds = u64::try_from(reported.health_check_timeout_seconds).unwrap_or(0);
    let timeout = match seconds {
        0 => DEFAULT_HEALTH_TIMEOUT,
        seconds => Duration::from_secs(seconds),
    };
    let device = reported.device.unwrap_or_default();
    let known = Known {
        health,
        message: shortened(reported.message),
        timeout,
        updated: now.wall,
        expires: after(now.instant, timeout),
    };
    ((device.pool_name, device.device_name), known)
}

/// A time that is too far away for the clock is as good as never.
pub(super) fn after(now: Instant, time: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    now + time.min(FAR)
}

/// `truncateHealthMessage`
fn shortened(mut message: String) -> String {
    const ENDING: &str = "...";
    if message.len() > LONGEST_MESSAGE {
        let mut end = LONGEST_MESSAGE - ENDING.len();
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push_str(ENDING);
    }
    message
}
