//! Faults: scripted, or drawn from a seed.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

use fnv::FnvHasher;
use parking_lot::Mutex;

use super::call::{ApiCall, Verb};
use super::store::Ending;
use super::trouble::Trouble;

/// The faults of a server: which requests and watches go wrong, and how.
///
/// ```
/// # use std::time::Duration;
/// # use kubelet_apiserver::{ApiServer, Verb};
/// # let server = ApiServer::new();
/// let faults = server.faults();
/// faults.on(Verb::Patch).resource("pods/status").nth(2).reply_lost();
/// faults.on(Verb::Update).resource("leases").user("system:node:one").first(3).fails(500, "etcdserver: leader changed");
/// faults.on(Verb::Create).resource("events").rate(0.1).too_many_requests(Duration::from_secs(1));
/// faults.on(Verb::Get).name("web").hangs();
/// faults.on(Verb::Watch).resource("pods").nth(1).silent_after(Duration::from_secs(60));
/// faults.on_any_call().rate(0.01).connection_lost();
/// ```
///
/// [`nth`](Fault::nth), [`first`](Fault::first) and [`rate`](Fault::rate) limit a fault to some of the requests that
/// match it. Without them it applies to every such request. If several faults apply to one request, the one that was
/// added first wins.
///
/// Whether a fault with a rate applies follows from the server's seed, from the request, and from how often this user
/// has made the same request. So the same requests meet the same faults, however the requests of different users
/// interleave.
#[derive(Clone)]
pub struct Faults {
    rules: Arc<Mutex<Rules>>,
}

struct Rules {
    seed: u64,
    made: u64,
    rules: Vec<Rule>,
    injected: Vec<String>,
}

struct Rule {
    target: Target,
    number: u64,
    trouble: Trouble,
    matched: u64,
    /// How often each kind of request was met, for those that are drawn.
    met: BTreeMap<String, u64>,
}

#[derive(Clone, Default)]
struct Target {
    verb: Option<Verb>,
    user: Option<String>,
    resource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    which: Which,
}

#[derive(Clone, Copy, Default)]
enum Which {
    #[default]
    Every,
    Nth(u64),
    First(u64),
    Rate(f64),
}

/// A fault under construction: first which requests it applies to, then what goes wrong. [`Faults::on`] and
/// [`Faults::on_any_call`] begin one. It has no effect until a method such as [`fails`](Fault::fails) completes it.
#[must_use]
pub struct Fault {
    faults: Faults,
    target: Target,
}

impl Faults {
    pub(crate) fn new(seed: u64) -> Self {
        let rules = Rules {
            seed,
            made: 0,
            rules: Vec::new(),
            injected: Vec::new(),
        };
        Faults {
            rules: Arc::new(Mutex::new(rules)),
        }
    }

    /// Begins a fault of requests with this verb.
    pub fn on(&self, verb: Verb) -> Fault {
        self.fault(Some(verb))
    }

    /// Begins a fault of any request for objects. It does not apply to discovery.
    pub fn on_any_call(&self) -> Fault {
        self.fault(None)
    }

    /// Removes all faults. Watches that are already silent stay silent.
    pub fn clear(&self) {
        self.rules.lock().rules.clear();
    }

    /// The faults that were injected so far: `patch pods/status default/web: reply lost`.
    pub fn injected(&self) -> Vec<String> {
        self.rules.lock().injected.clone()
    }

    fn fault(&self, verb: Option<Verb>) -> Fault {
        Fault {
            faults: self.clone(),
            target: Target {
                verb,
                ..Target::default()
            },
        }
    }

    /// The fault that applies to a request: the first rule that fires. Every rule that matches counts the request.
    pub(crate) fn of(&self, call: &ApiCall) -> Option<Trouble> {
        let mut rules = self.rules.lock();
        let seed = rules.seed;
        if rules.rules.is_empty() {
            return None;
        }
        let (mut found, key) = (None, format!("{} {call}", call.user));
        for rule in &mut rules.rules {
            if rule.fires(seed, call, &key) && found.is_none() {
                found = Some(rule.trouble.clone());
            }
        }
        if let Some(trouble) = &found {
            rules.injected.push(format!("{call}: {trouble}"));
        }
        found
    }
}

impl Fault {
    /// Only requests of this user: `system:node:one`.
    pub fn user(mut self, name: impl Into<String>) -> Self {
        self.target.user = Some(name.into());
        self
    }

    /// Only requests for this resource or sub-resource: `pods`, `pods/status`. `pods` does not include `pods/status`.
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.target.resource = Some(resource.into());
        self
    }

    /// Only requests in this namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.target.namespace = Some(namespace.into());
        self
    }

    /// Only requests for the object with this name. This includes its creation.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.target.name = Some(name.into());
        self
    }

    /// Only the n-th request that matches from now on, counted from 1.
    pub fn nth(mut self, n: u64) -> Self {
        self.target.which = Which::Nth(n);
        self
    }

    /// Only the first n requests that match from now on.
    pub fn first(mut self, n: u64) -> Self {
        self.target.which = Which::First(n);
        self
    }

    /// Only a fraction of the requests that match, drawn from the server's seed: 0 is none, 1 is all.
    pub fn rate(mut self, rate: f64) -> Self {
        self.target.which = Which::Rate(rate);
        self
    }

    /// The server does nothing and answers with a `Status` of this code: 500, 503…
    pub fn fails(self, code: u16, message: impl Into<String>) {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            410 => "Expired",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "",
        };
        self.add(Trouble::Refused {
            code,
            reason,
            message: message.into(),
            retry_after: None,
        });
    }

    /// The server does nothing and answers 429 with `Retry-After` (in whole seconds, at least one), as API Priority
    /// and Fairness does.
    pub fn too_many_requests(self, retry_after: Duration) {
        self.add(Trouble::Refused {
            code: 429,
            reason: "TooManyRequests",
            message: "too many requests, please try again later".into(),
            retry_after: Some(retry_after.as_secs().max(1)),
        });
    }

    /// The server processes the request after this delay.
    pub fn slow(self, by: Duration) {
        self.add(Trouble::Slow(by));
    }

    /// The server does nothing and sends no answer, until the client gives up or the server restarts.
    pub fn hangs(self) {
        self.add(Trouble::Hangs);
    }

    /// The server does nothing, and the connection breaks.
    pub fn connection_lost(self) {
        self.add(Trouble::ConnectionLost);
    }

    /// The server processes the request, but the connection breaks before the answer.
    pub fn reply_lost(self) {
        self.add(Trouble::ReplyLost);
    }

    /// The server processes the request at once and answers after this delay.
    pub fn reply_delayed(self, by: Duration) {
        self.add(Trouble::ReplyDelayed(by));
    }

    /// The server processes the request and sends no answer, until the client gives up or the server restarts.
    pub fn reply_hangs(self) {
        self.add(Trouble::ReplyHangs);
    }

    /// A watch gets `410 Gone` at once, because its `resourceVersion` is too old.
    pub fn gone(self) {
        self.add(Trouble::Gone);
    }

    /// A watch becomes silent after this time: it delivers nothing more and does not time out.
    pub fn silent_after(self, open: Duration) {
        self.add(Trouble::Ends(Ending::Silent, open));
    }

    /// A watch closes cleanly after this time, as if it had timed out.
    pub fn closed_after(self, open: Duration) {
        self.add(Trouble::Ends(Ending::Closed, open));
    }

    /// The connection of a watch breaks after this time.
    pub fn broken_after(self, open: Duration) {
        self.add(Trouble::Ends(Ending::Broken, open));
    }

    fn add(self, trouble: Trouble) {
        let mut rules = self.faults.rules.lock();
        rules.made += 1;
        let rule = Rule {
            target: self.target,
            number: rules.made,
            trouble,
            matched: 0,
            met: BTreeMap::new(),
        };
        rules.rules.push(rule);
    }
}

impl Rule {
    fn fires(&mut self, seed: u64, call: &ApiCall, key: &str) -> bool {
        // These apply to watches only.
        let fits = match self.trouble {
            Trouble::Gone | Trouble::Ends(..) => call.verb == Verb::Watch,
            _ => true,
        };
        if !fits || !self.target.matches(call) {
            return false;
        }
        self.matched += 1;
        match self.target.which {
            Which::Every => true,
            Which::Nth(n) => self.matched == n,
            Which::First(n) => self.matched <= n,
            Which::Rate(rate) => {
                if !self.met.contains_key(key) {
                    self.met.insert(key.to_owned(), 0);
                }
                let Some(met) = self.met.get_mut(key) else {
                    return false;
                };
                *met += 1;
                unit(seed, format_args!("fault {} {key} {met}", self.number)) < rate
            }
        }
    }
}

impl Target {
    fn matches(&self, call: &ApiCall) -> bool {
        let is = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
        self.verb.is_none_or(|verb| verb == call.verb)
            && is(&self.user, &call.user)
            && is(&self.resource, &call.resource)
            && is(&self.namespace, &call.namespace)
            && is(&self.name, &call.name)
    }
}

/// A number from 0 to 1 that follows from a seed and a text (FNV-1a).
fn unit(seed: u64, text: fmt::Arguments<'_>) -> f64 {
    let mut fnv = FnvHasher::default();
    fnv.write(text.to_string().as_bytes());
    fastrand::Rng::with_seed(seed ^ fnv.finish()).f64()
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules.lock().rules.len();
        f.debug_struct("Faults")
            .field("rules", &rules)
            .finish_non_exhaustive()
    }
}

kubelet_core::impl_debug!(Fault);

#[cfg(test)]
mod tests {
    use super::*;

    fn call(verb: Verb, resource: &str, name: &str) -> ApiCall {
        ApiCall {
            user: "system:admin".into(),
            verb,
            resource: resource.into(),
            namespace: "default".into(),
            name: name.into(),
            field_selector: String::new(),
            at: Default::default(),
            status: None,
        }
    }

    #[test]
    fn applies_to_the_requests_that_match() {
        let faults = Faults::new(1);
        faults
            .on(Verb::Patch)
            .resource("pods/status")
            .name("a")
            .nth(2)
            .reply_lost();
        let web = call(Verb::Patch, "pods/status", "a");
        for other in [
            call(Verb::Patch, "pods", "a"),
            call(Verb::Patch, "pods/status", "b"),
            call(Verb::Get, "pods/status", "a"),
        ] {
            assert!(faults.of(&other).is_none());
        }
        let hit: Vec<_> = (0..3).map(|_| faults.of(&web).is_some()).collect();
        assert_eq!(hit, [false, true, false]);
        assert_eq!(faults.injected(), ["patch pods/status default/a: reply lost"]);
    }

    #[test]
    fn faults_of_watches_apply_to_watches_only() {
        let faults = Faults::new(1);
        faults.on_any_call().gone();
        assert!(faults.of(&call(Verb::List, "pods", "")).is_none());
        assert!(faults.of(&call(Verb::Watch, "pods", "")).is_some());
    }

    #[test]
    fn the_same_requests_get_the_same_faults() {
        let drawn = |order: &[&str]| {
            let faults = Faults::new(5);
            faults.on_any_call().rate(0.3).connection_lost();
            let mut drawn: BTreeMap<String, Vec<bool>> = BTreeMap::new();
            for name in order {
                let hit = faults.of(&call(Verb::Get, "pods", name)).is_some();
                drawn.entry((*name).into()).or_default().push(hit);
            }
            drawn
        };
        let apart: Vec<&str> = [["a"; 50], ["b"; 50]].concat();
        let mixed: Vec<&str> = ["a", "b"].repeat(50);
        assert_eq!(drawn(&apart), drawn(&mixed));
        let hit = drawn(&apart).values().flatten().filter(|b| **b).count();
        assert!((15..45).contains(&hit), "{hit} of 100");
    }
}
