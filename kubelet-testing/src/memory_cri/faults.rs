//! Faults: scripted, or drawn from a seed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kubelet_cri::{Code, v1};
use parking_lot::Mutex;

use super::random::{Drawn, Draws};
use super::{Call, Subject};
use crate::Calls;

/// The faults of a runtime: which calls and events go wrong, and how.
///
/// ```
/// # use std::time::Duration;
/// # use kubelet_cri::{Code, v1::ContainerEventType};
/// # use kubelet_testing::memory_cri::{Call, MemoryCri};
/// # let runtime = MemoryCri::new(kubelet_core::Clock::system());
/// let faults = runtime.faults();
/// faults.on(Call::StartContainer).container("main").nth(2).reply_lost();
/// faults.on(Call::PullImage).first(3).fails(Code::Unavailable, "registry is busy");
/// faults.on(Call::StopPodSandbox).pod("web").hangs();
/// faults.on_any_call().rate(0.05).slow(Duration::from_secs(3));
/// faults.on(Call::CreateContainer).nth(1).crashes_after_work(Duration::from_secs(60));
/// faults.on_event(ContainerEventType::ContainerStoppedEvent).rate(0.5).lost();
/// ```
///
/// [`nth`](Fault::nth), [`first`](Fault::first) and [`rate`](Fault::rate) limit a fault to some of the calls or
/// events that match it. Without them it applies to every one. If several faults apply to one call, the one that was
/// added first wins.
///
/// Whether a fault with a rate applies follows from the runtime's seed, from the call (its name, pod, container and
/// image), and from how often the same call was made before. So the same calls meet the same faults, however the
/// calls of different pods interleave.
#[derive(Clone)]
pub struct Faults {
    rules: Arc<Mutex<Rules>>,
    injected: Calls<String>,
}

struct Rules {
    seed: u64,
    made: u64,
    calls: Vec<Rule<Call, CallFault>>,
    events: Vec<Rule<v1::ContainerEventType, EventFault>>,
    drawn: Drawn,
}

struct Rule<K, F> {
    target: Target<K>,
    number: u64,
    fault: F,
    matched: u64,
}

#[derive(Clone)]
struct Target<K> {
    /// Empty: any call.
    kinds: Vec<K>,
    pod: Option<String>,
    container: Option<String>,
    image: Option<String>,
    which: Which,
}

#[derive(Clone, Copy)]
enum Which {
    Every,
    Nth(u64),
    First(u64),
    Rate(f64),
}

/// What goes wrong with a call, before or after its work.
#[derive(Clone, Debug)]
pub(super) struct CallFault {
    pub(super) after_work: bool,
    pub(super) trouble: Trouble,
}

#[derive(Clone, Debug)]
pub(super) enum Trouble {
    Fails(Code, String),
    Delay(Duration),
    Hangs,
    /// The runtime comes back after this time.
    Crash(Duration),
}

/// What goes wrong with an event.
#[derive(Clone, Copy, Debug)]
pub(super) enum EventFault {
    Lost,
    Twice,
    Late(Duration),
    Reordered,
}

/// A fault under construction: first which calls it applies to, then what goes wrong. [`Faults::on`] and similar
/// methods begin one. It has no effect until a method such as [`fails`](Fault::fails) completes it.
#[must_use]
pub struct Fault<K> {
    faults: Faults,
    target: Target<K>,
}

impl Faults {
    pub(super) fn new(seed: u64) -> Self {
        let rules = Rules {
            seed,
            made: 0,
            calls: Vec::new(),
            events: Vec::new(),
            drawn: Drawn::default(),
        };
        Self {
            rules: Arc::new(Mutex::new(rules)),
            injected: Calls::new(),
        }
    }

    /// Begins a fault of one call.
    pub fn on(&self, call: Call) -> Fault<Call> {
        self.fault([call])
    }

    /// Begins a fault of any of these calls, which are counted together.
    pub fn on_each(&self, calls: impl IntoIterator<Item = Call>) -> Fault<Call> {
        self.fault(calls)
    }

    /// Begins a fault of any call.
    pub fn on_any_call(&self) -> Fault<Call> {
        self.fault([])
    }

    /// Begins a fault of an event, for all watchers.
    pub fn on_event(&self, event: v1::ContainerEventType) -> Fault<v1::ContainerEventType> {
        self.fault([event])
    }

    /// Begins a fault of any event.
    pub fn on_any_event(&self) -> Fault<v1::ContainerEventType> {
        self.fault([])
    }

    /// Removes all faults.
    pub fn clear(&self) {
        let mut rules = self.rules.lock();
        rules.calls.clear();
        rules.events.clear();
        rules.drawn.clear();
    }

    /// The faults that were injected so far: `StartContainer web/main#1: reply lost`.
    pub fn injected(&self) -> &Calls<String> {
        &self.injected
    }

    fn fault<K>(&self, kinds: impl IntoIterator<Item = K>) -> Fault<K> {
        let target = Target {
            kinds: kinds.into_iter().collect(),
            pod: None,
            container: None,
            image: None,
            which: Which::Every,
        };
        Fault {
            faults: self.clone(),
            target,
        }
    }

    /// The fault that applies to a call.
    pub(super) fn of_call(&self, call: Call, about: &Subject) -> Option<CallFault> {
        let mut rules = self.rules.lock();
        let Rules {
            seed, calls, drawn, ..
        } = &mut *rules;
        let fault = first(calls, *seed, drawn, call, call.name(), about)?;
        self.injected
            .record(format!("{}: {fault}", named(call.name(), about)));
        Some(fault)
    }

    /// The fault that applies to an event.
    pub(super) fn of_event(&self, event: v1::ContainerEventType, about: &Subject) -> Option<EventFault> {
        let mut rules = self.rules.lock();
        let Rules {
            seed, events, drawn, ..
        } = &mut *rules;
        let name = event.as_str_name();
        let fault = first(events, *seed, drawn, event, name, about)?;
        self.injected.record(format!("{}: {fault}", named(name, about)));
        Some(fault)
    }
}

/// The fault of the first rule that fires. Every rule that matches counts.
fn first<K: Copy + PartialEq, F: Clone>(
    rules: &mut [Rule<K, F>],
    seed: u64,
    drawn: &mut Drawn,
    kind: K,
    name: &str,
    about: &Subject,
) -> Option<F> {
    if rules.is_empty() {
        return None;
    }
    let (mut found, key) = (None, key_of(name, about));
    let mut draws = drawn.of(seed, &key);
    for rule in rules {
        if rule.fires(kind, about, &mut draws) && found.is_none() {
            found = Some(rule.fault.clone());
        }
    }
    found
}

/// The draw for one call does not depend on other calls in between.
fn key_of(name: &str, about: &Subject) -> String {
    let Subject {
        namespace,
        pod,
        container,
        image,
        ..
    } = about;
    format!("{name} {namespace}/{pod}/{container} {image}")
}

fn named(name: &str, about: &Subject) -> String {
    let about = about.to_string();
    if about.is_empty() {
        name.to_owned()
    } else {
        format!("{name} {about}")
    }
}

impl<K: Copy + PartialEq, F> Rule<K, F> {
    fn fires(&mut self, kind: K, about: &Subject, draws: &mut Draws<'_>) -> bool {
        if !self.target.matches(kind, about) {
            return false;
        }
        self.matched += 1;
        match self.target.which {
            Which::Every => true,
            Which::Nth(n) => self.matched == n,
            Which::First(n) => self.matched <= n,
            Which::Rate(rate) => draws.next(self.number) < rate,
        }
    }
}

impl<K: PartialEq> Target<K> {
    fn matches(&self, kind: K, about: &Subject) -> bool {
        let is = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
        (self.kinds.is_empty() || self.kinds.contains(&kind))
            && self.pod.as_ref().is_none_or(|pod| about.is_pod(pod))
            && is(&self.container, &about.container)
            && is(&self.image, &about.image)
    }
}

impl<K> Fault<K> {
    /// Only calls for the pod with this name, `web` or `shop/web`.
    pub fn pod(mut self, name: impl Into<String>) -> Self {
        self.target.pod = Some(name.into());
        self
    }

    /// Only calls for containers with this name.
    pub fn container(mut self, name: impl Into<String>) -> Self {
        self.target.container = Some(name.into());
        self
    }

    /// Only calls for this image, as the call names it.
    pub fn image(mut self, name: impl Into<String>) -> Self {
        self.target.image = Some(name.into());
        self
    }

    /// Only the n-th match from now on, counted from 1.
    pub fn nth(mut self, n: u64) -> Self {
        self.target.which = Which::Nth(n);
        self
    }

    /// Only the first n matches from now on.
    pub fn first(mut self, n: u64) -> Self {
        self.target.which = Which::First(n);
        self
    }

    /// Only a fraction of the matches, drawn from the runtime's seed: 0 is none, 1 is all.
    pub fn rate(mut self, rate: f64) -> Self {
        self.target.which = Which::Rate(rate);
        self
    }
}

impl Fault<Call> {
    /// The runtime does nothing and returns this error, after the usual time.
    pub fn fails(self, code: Code, message: impl Into<String>) {
        self.add(false, Trouble::Fails(code, message.into()));
    }

    /// The runtime does the work after this additional delay.
    pub fn slow(self, by: Duration) {
        self.add(false, Trouble::Delay(by));
    }

    /// The runtime does nothing and does not answer until the caller gives up.
    pub fn hangs(self) {
        self.add(false, Trouble::Hangs);
    }

    /// The runtime does the work, but the connection breaks: the caller gets `Unavailable`.
    pub fn reply_lost(self) {
        self.reply_fails(Code::Unavailable, "error reading from server: EOF");
    }

    /// The runtime does the work, but returns this error.
    pub fn reply_fails(self, code: Code, message: impl Into<String>) {
        self.add(true, Trouble::Fails(code, message.into()));
    }

    /// The runtime does the work in the usual time and answers after this delay.
    pub fn reply_delayed(self, by: Duration) {
        self.add(true, Trouble::Delay(by));
    }

    /// The runtime does the work and does not answer until the caller gives up.
    pub fn reply_hangs(self) {
        self.add(true, Trouble::Hangs);
    }

    /// The runtime crashes before it does the work. It comes back after `away` with all its containers, as with
    /// [`MemoryCri::crash_for`](super::MemoryCri::crash_for).
    pub fn crashes(self, away: Duration) {
        self.add(false, Trouble::Crash(away));
    }

    /// The runtime crashes after it has done the work and before it answers.
    pub fn crashes_after_work(self, away: Duration) {
        self.add(true, Trouble::Crash(away));
    }

    fn add(self, after_work: bool, trouble: Trouble) {
        let fault = CallFault { after_work, trouble };
        let mut rules = self.faults.rules.lock();
        let rule = rules.rule(self.target, fault);
        rules.calls.push(rule);
    }
}

impl Fault<v1::ContainerEventType> {
    /// The event is lost.
    pub fn lost(self) {
        self.add(EventFault::Lost);
    }

    /// The event comes twice.
    pub fn doubled(self) {
        self.add(EventFault::Twice);
    }

    /// The event comes after this delay, with its original content.
    pub fn late(self, by: Duration) {
        self.add(EventFault::Late(by));
    }

    /// The next event overtakes it. If none comes within a second, it comes then.
    pub fn reordered(self) {
        self.add(EventFault::Reordered);
    }

    fn add(self, fault: EventFault) {
        let mut rules = self.faults.rules.lock();
        let rule = rules.rule(self.target, fault);
        rules.events.push(rule);
    }
}

impl Rules {
    fn rule<K, F>(&mut self, target: Target<K>, fault: F) -> Rule<K, F> {
        self.made += 1;
        Rule {
            target,
            number: self.made,
            fault,
            matched: 0,
        }
    }
}

impl fmt::Display for CallFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reply = if self.after_work { "reply " } else { "" };
        match (&self.trouble, self.after_work) {
            (Trouble::Fails(Code::Unavailable, _), true) => f.write_str("reply lost"),
            (Trouble::Fails(code, _), _) => write!(f, "{reply}fails, {code}"),
            (Trouble::Delay(by), _) => write!(f, "{reply}slower by {by:?}"),
            (Trouble::Hangs, _) => write!(f, "{reply}hangs"),
            (Trouble::Crash(away), false) => write!(f, "crash for {away:?}"),
            (Trouble::Crash(away), true) => write!(f, "crash after work for {away:?}"),
        }
    }
}

impl fmt::Display for EventFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("lost"),
            Self::Twice => f.write_str("doubled"),
            Self::Late(by) => write!(f, "late by {by:?}"),
            Self::Reordered => f.write_str("reordered"),
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules.lock();
        f.debug_struct("Faults")
            .field("calls", &rules.calls.len())
            .field("events", &rules.events.len())
            .finish_non_exhaustive()
    }
}

kubelet_core::impl_debug!(Fault<K>);
