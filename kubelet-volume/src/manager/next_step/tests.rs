use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::*;

fn uid(name: &str) -> PodUid {
    PodUid::from(name)
}

fn mount(wanted: Wanted, presence: Presence) -> MountSituation {
    MountSituation {
        wanted,
        presence,
        ..MountSituation::default()
    }
}

fn volume(mounts: &[(&str, MountSituation)]) -> Situation {
    Situation {
        mounts: mounts
            .iter()
            .map(|(name, mount)| (uid(name), mount.clone()))
            .collect(),
        ..Situation::default()
    }
}

#[test]
fn one_step_at_a_time() {
    use Presence::{Absent, Mounted, Uncertain};
    use Wanted::{No, Unknown, Yes};

    let now = Instant::now();
    let of = |mounts: &[(&str, MountSituation)]| volume(mounts);
    let stale = MountSituation {
        is_stale: true,
        ..mount(Yes, Mounted)
    };
    let with_device = |device, mounts: &[(&str, MountSituation)]| Situation {
        has_device: true,
        device,
        ..volume(mounts)
    };
    let attachable = |attached, reported_in_use, mounts: &[(&str, MountSituation)]| Situation {
        attachable: true,
        attached,
        reported_in_use,
        ..volume(mounts)
    };
    let later = now + Duration::from_secs(5);
    let expires = MountSituation {
        again_at: Some(later),
        ..mount(Yes, Mounted)
    };
    let (a, b) = (uid("a"), uid("b"));
    for (situation, by_controller, by_agent) in [
        (of(&[]), Step::Forget, Step::Forget),
        (
            of(&[("a", mount(Yes, Absent))]),
            Step::Mount(a.clone()),
            Step::Mount(a.clone()),
        ),
        (
            of(&[("a", mount(Yes, Uncertain))]),
            Step::Mount(a.clone()),
            Step::Mount(a.clone()),
        ),
        (of(&[("a", mount(Yes, Mounted))]), Step::Rest, Step::Rest),
        (
            of(&[("a", stale.clone())]),
            Step::Mount(a.clone()),
            Step::Mount(a.clone()),
        ),
        (
            of(&[(
                "a",
                MountSituation {
                    rests_until: Some(later),
                    ..stale.clone()
                },
            )]),
            Step::WaitUntil(later),
            Step::WaitUntil(later),
        ),
        (
            of(&[("a", expires.clone())]),
            Step::WaitUntil(later),
            Step::WaitUntil(later),
        ),
        (of(&[("a", mount(Unknown, Uncertain))]), Step::Rest, Step::Rest),
        (
            of(&[("a", mount(No, Uncertain))]),
            Step::TearDown(a.clone()),
            Step::TearDown(a.clone()),
        ),
        (of(&[("a", mount(No, Absent))]), Step::Forget, Step::Forget),
        // Leftovers first, then pods that start, then updates.
        (
            of(&[("a", mount(Yes, Absent)), ("b", mount(No, Mounted))]),
            Step::TearDown(b.clone()),
            Step::TearDown(b.clone()),
        ),
        (
            of(&[("a", stale), ("b", mount(Yes, Absent))]),
            Step::Mount(b.clone()),
            Step::Mount(b),
        ),
        (
            with_device(Mounted, &[("a", mount(Yes, Mounted))]),
            Step::Rest,
            Step::Rest,
        ),
        (
            with_device(Mounted, &[("a", mount(Unknown, Uncertain))]),
            Step::Rest,
            Step::Rest,
        ),
        (
            with_device(Uncertain, &[]),
            Step::UnmountDevice,
            Step::UnmountDevice,
        ),
        (
            Situation {
                device_is_held: true,
                ..with_device(Uncertain, &[])
            },
            Step::Rest,
            Step::Rest,
        ),
        (with_device(Absent, &[]), Step::Forget, Step::Forget),
        (
            attachable(false, false, &[("a", mount(Yes, Absent))]),
            Step::Rest,
            Step::Attach,
        ),
        (
            attachable(false, true, &[("a", mount(Yes, Absent))]),
            Step::VerifyAttached,
            Step::Attach,
        ),
        (
            attachable(true, false, &[("a", mount(Yes, Absent))]),
            Step::Mount(a.clone()),
            Step::Mount(a.clone()),
        ),
        (attachable(true, false, &[]), Step::Forget, Step::Detach),
        (
            Situation {
                must_grow: true,
                ..of(&[("a", mount(Yes, Mounted))])
            },
            Step::Expand(a.clone()),
            Step::Expand(a),
        ),
        (
            Situation {
                is_busy: true,
                ..of(&[("a", mount(Yes, Absent))])
            },
            Step::Rest,
            Step::Rest,
        ),
    ] {
        assert_eq!(next_step(&situation, true, now), by_controller, "{situation:?}");
        assert_eq!(next_step(&situation, false, now), by_agent, "{situation:?}");
    }
}

#[test]
fn a_failed_operation_waits_and_others_do_not() {
    let now = Instant::now();
    let mut situation = volume(&[
        ("a", mount(Wanted::Yes, Presence::Absent)),
        ("b", mount(Wanted::Yes, Presence::Absent)),
    ]);
    let fail = |situation: &mut Situation, name: &str, kind| {
        situation
            .mounts
            .get_mut(&uid(name))
            .unwrap()
            .back_off
            .fail(kind, now);
    };
    fail(&mut situation, "a", Kind::Mount);
    assert_eq!(next_step(&situation, true, now), Step::Mount(uid("b")));
    fail(&mut situation, "b", Kind::Mount);
    fail(&mut situation, "b", Kind::Mount);
    let at = now + Duration::from_millis(500);
    assert_eq!(next_step(&situation, true, now), Step::WaitUntil(at));
    assert_eq!(next_step(&situation, true, at), Step::Mount(uid("a")));
    // Its pod has ended: unmounting does not wait for the failed mount.
    let a = situation.mounts.get_mut(&uid("a")).unwrap();
    (a.wanted, a.presence) = (Wanted::No, Presence::Uncertain);
    assert_eq!(next_step(&situation, true, now), Step::TearDown(uid("a")));
}

/// What happens to a volume.
#[derive(Clone, Debug)]
enum Happens {
    /// The pod starts or comes back.
    Wants(usize),
    /// The pod ends.
    Ends(usize),
    /// The files of the pod's mount must be made again.
    Changes(usize),
    Reported(bool),
    /// The engine starts the next step, which succeeds, fails, or fails half-way.
    Steps(Ends),
    Waits(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Well,
    Fails,
    HalfWay,
}

const PODS: [&str; 3] = ["a", "b", "c"];

fn happens() -> impl Strategy<Value = Happens> {
    let ends = prop_oneof![3 => Just(Ends::Well), 1 => Just(Ends::Fails), 1 => Just(Ends::HalfWay)];
    prop_oneof![
        3 => (0..PODS.len()).prop_map(Happens::Wants),
        3 => (0..PODS.len()).prop_map(Happens::Ends),
        1 => (0..PODS.len()).prop_map(Happens::Changes),
        1 => any::<bool>().prop_map(Happens::Reported),
        8 => ends.prop_map(Happens::Steps),
        1 => (0..2000_u16).prop_map(Happens::Waits),
    ]
}

/// A volume, and what is really mounted.
struct Host {
    situation: Situation,
    controller_attaches: bool,
    now: Instant,
    mounted: BTreeMap<PodUid, bool>,
    device: bool,
}

impl Host {
    fn new(has_device: bool, attachable: bool, controller_attaches: bool) -> Self {
        let situation = Situation {
            has_device,
            attachable,
            ..Situation::default()
        };
        Self {
            situation,
            controller_attaches,
            now: Instant::now(),
            mounted: BTreeMap::new(),
            device: false,
        }
    }

    fn step(&self) -> Step {
        next_step(&self.situation, self.controller_attaches, self.now)
    }

    /// Runs a step, and checks that it may run.
    fn run(&mut self, step: &Step, ends: Ends) {
        let has_effect = ends != Ends::Fails;
        let presence = |before, after| match ends {
            Ends::Well => after,
            Ends::HalfWay => Presence::Uncertain,
            Ends::Fails => before,
        };
        let situation = &mut self.situation;
        match step {
            Step::Mount(uid) => {
                let mount = situation.mounts.get_mut(uid).unwrap();
                assert_eq!(mount.wanted, Wanted::Yes);
                assert!(
                    !situation.attachable || situation.attached,
                    "mounted before it is attached"
                );
                if situation.has_device {
                    self.device = true;
                    situation.device = Presence::Mounted;
                }
                if has_effect {
                    self.mounted.insert(uid.clone(), true);
                }
                let rests = mount.presence == Presence::Mounted && ends == Ends::Well;
                mount.rests_until = rests.then(|| self.now + Duration::from_secs(1));
                if mount.presence != Presence::Mounted {
                    mount.presence = presence(mount.presence, Presence::Mounted);
                }
                mount.is_stale &= ends != Ends::Well;
                note(&mut mount.back_off, Kind::Mount, ends, self.now);
            }
            Step::TearDown(uid) => {
                let mount = situation.mounts.get_mut(uid).unwrap();
                assert_eq!(mount.wanted, Wanted::No, "torn down while it is wanted");
                if has_effect {
                    self.mounted.remove(uid);
                }
                mount.presence = match ends {
                    Ends::Well => Presence::Absent,
                    _ => Presence::Uncertain,
                };
                note(&mut mount.back_off, Kind::TearDown, ends, self.now);
            }
            Step::UnmountDevice => {
                assert!(self.mounted.is_empty(), "the device goes before the pods' mounts");
                self.device &= !has_effect;
                situation.device = match ends {
                    Ends::Well => Presence::Absent,
                    _ => Presence::Uncertain,
                };
                note(&mut situation.back_off, Kind::UnmountDevice, ends, self.now);
            }
            Step::VerifyAttached => {
                assert!(situation.reported_in_use);
                situation.attached = ends == Ends::Well;
                note(&mut situation.back_off, Kind::VerifyAttached, ends, self.now);
            }
            Step::Attach => {
                situation.attached = ends == Ends::Well;
                note(&mut situation.back_off, Kind::Attach, ends, self.now);
            }
            Step::Detach => {
                assert!(
                    !self.device && self.mounted.is_empty(),
                    "detached while it is mounted"
                );
                situation.attached = ends != Ends::Well;
                note(&mut situation.back_off, Kind::Detach, ends, self.now);
            }
            Step::Forget => {
                assert!(
                    !self.device && self.mounted.is_empty(),
                    "forgotten while it is mounted"
                );
                situation.attached = false;
                situation.mounts.clear();
            }
            Step::Expand(_) => situation.must_grow = false,
            Step::Rest | Step::WaitUntil(_) => {}
        }
    }
}

fn note(back_off: &mut BackOff, kind: Kind, ends: Ends, now: Instant) {
    match ends {
        Ends::Well => back_off.reset(),
        _ => back_off.fail(kind, now),
    }
}

proptest! {
    /// Whatever happens: no mount is torn down while its pod wants it, no device goes before the mounts of pods, nothing is
    /// forgotten while it is mounted, and in the end exactly what is wanted is mounted.
    #[test]
    fn what_is_mounted_becomes_what_is_wanted(
        (has_device, attachable, controller_attaches) in any::<(bool, bool, bool)>(),
        story in prop::collection::vec(happens(), 0..60),
    ) {
        let mut host = Host::new(has_device, attachable, controller_attaches);
        for happens in story {
            match happens {
                Happens::Wants(pod) => {
                    let mount = host.situation.mounts.entry(uid(PODS[pod])).or_default();
                    mount.wanted = Wanted::Yes;
                }
                Happens::Ends(pod) => {
                    if let Some(mount) = host.situation.mounts.get_mut(&uid(PODS[pod])) {
                        mount.wanted = Wanted::No;
                    }
                }
                Happens::Changes(pod) => {
                    if let Some(mount) = host.situation.mounts.get_mut(&uid(PODS[pod])) {
                        mount.is_stale = true;
                    }
                }
                Happens::Reported(is_reported) => host.situation.reported_in_use = is_reported,
                Happens::Steps(ends) => {
                    let step = host.step();
                    host.run(&step, ends);
                }
                Happens::Waits(millis) => host.now += Duration::from_millis(millis.into()),
            }
        }
        host.situation.reported_in_use = true;
        let mut steps = 0;
        loop {
            match host.step() {
                Step::Rest => break,
                Step::Forget => {
                    host.run(&Step::Forget, Ends::Well);
                    break;
                }
                Step::WaitUntil(at) => {
                    prop_assert!(at > host.now);
                    host.now = at;
                }
                step => host.run(&step, Ends::Well),
            }
            steps += 1;
            prop_assert!(steps < 100, "it never rests: {:?}", host.situation);
        }
        let wanted = host.situation.mounts.iter().filter(|(_, mount)| mount.wanted == Wanted::Yes);
        let wanted: Vec<&PodUid> = wanted.map(|(uid, _)| uid).collect();
        prop_assert_eq!(wanted.clone(), host.mounted.keys().collect::<Vec<_>>());
        prop_assert_eq!(host.device, has_device && !wanted.is_empty());
    }
}
