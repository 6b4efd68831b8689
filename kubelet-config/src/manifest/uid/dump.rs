//! The dump of a pod, as the kubelet writes it to hash it: Go's `spew` with types, without addresses, with sorted keys.
//!
//! ```text
//! (*core.Pod){TypeMeta:(v1.TypeMeta){Kind:(string) APIVersion:(string)} … Spec:(core.PodSpec){Volumes:([]core.Volume)<nil> …
//! ```
//!
//! A field has its type before its value; what is in a list, a map or behind a pointer has none of its own. A list or a
//! map that is not there is `<nil>`, an empty one is `[]` or `map[]`. A string has no quotes.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};

use super::core_types::{STRUCTS, Struct};
use super::pod_resources::{Amounts, PodResources};
use super::quantity::GoQuantity;
use super::written::{Known, Syntax, is_set, managed_fields, quantity};

/// From year 1, where Go's clock begins, to 1970, in seconds.
const YEAR_1_TO_1970: i64 = 62_135_596_800;

/// The local time zone of a node whose `/etc/localtime` is UTC.
const LOCAL_TIME: &str = "{name:(string)Local zone:([]time.zone)[{name:(string)UTC offset:(int)0 isDST:(bool)false}] \
     tx:([]time.zoneTrans)[{when:(int64)-9223372036854775808 index:(uint8)0 isstd:(bool)false isutc:(bool)false}] \
     extend:(string)UTC0 cacheStart:(int64)-9223372036854775808 cacheEnd:(int64)9223372036854775807 \
     cacheZone:(*time.zone){name:(string)UTC offset:(int)0 isDST:(bool)false}}";

/// Dumps a pod. `pod` has the defaults. `written` is how the manifest has it, which tells an empty list from none, and how a
/// quantity was written.
pub(super) fn dump(pod: &Value, written: &Value, resources: &PodResources, syntax: Syntax) -> Known<String> {
    let pod = At {
        pod: Some(pod),
        written: Some(written),
    };
    let mut dumper = Dumper {
        out: String::from("(*core.Pod)"),
        spec: pod.field("spec"),
        resources,
        syntax,
        depth: 0,
        local_time: None,
    };
    dumper.value("core.Pod", pod)?;
    Ok(dumper.out)
}

/// A part of the pod.
#[derive(Clone, Copy, Default)]
struct At<'a> {
    pod: Option<&'a Value>,
    written: Option<&'a Value>,
}

impl<'a> At<'a> {
    fn field(self, name: &str) -> Self {
        Self {
            pod: self.pod.and_then(|value| value.get(name)),
            written: self.written.and_then(|value| value.get(name)),
        }
    }

    fn item(self, index: usize) -> Self {
        Self {
            pod: self.pod.and_then(|value| value.get(index)),
            written: self.written.and_then(|value| value.get(index)),
        }
    }

    /// The value, unless there is none. What a `k8s-openapi` of an older version does not know is only written.
    fn value(self) -> Option<&'a Value> {
        let values = [self.pod, self.written];
        values.into_iter().flatten().find(|value| is_set(value))
    }

    /// Whether `k8s-openapi` filled in an object that the API requires.
    fn is_filled_in(self) -> bool {
        let fields = self.pod.and_then(Value::as_object);
        let empty =
            |fields: &Map<String, Value>| !fields.is_empty() && fields.values().all(|value| value == "");
        !self.written.is_some_and(is_set) && fields.is_some_and(empty)
    }
}

struct Dumper<'a> {
    out: String,
    spec: At<'a>,
    resources: &'a PodResources,
    syntax: Syntax,
    /// How deep in structs, lists and maps the dump is.
    depth: usize,
    /// The depth at which the local time zone was dumped. While the dump is deeper than that, another one is
    /// `<shown>`. A pointer that is not as deep ends that.
    local_time: Option<usize>,
}

impl Dumper<'_> {
    fn value(&mut self, go_type: &str, at: At<'_>) -> Known<()> {
        if let Some(pointee) = go_type.strip_prefix('*') {
            self.pass_pointer();
            return match at.value() {
                Some(_) if !at.is_filled_in() => self.value(pointee, at),
                _ => self.write("<nil>"),
            };
        }
        if let Some(item) = go_type.strip_prefix("[]") {
            return self.list(item, at);
        }
        match go_type {
            "core.ResourceList" => return self.resource_list(at),
            "map[core.ResourceName]resource.Quantity" => return self.quantities(at),
            "map[string]string" => return self.strings(at),
            "resource.Quantity" => {
                let quantity = quantity(at.written)?;
                self.quantity(&quantity);
                return Ok(());
            }
            "intstr.IntOrString" => return self.int_or_string(at),
            "v1.Time" => return self.time(at),
            "v1.FieldsV1" => return self.fields_v1(at),
            "bool" => {
                let value = at.value().is_some_and(|value| value == &Value::Bool(true));
                return self.write(if value { "true" } else { "false" });
            }
            "int32" | "int64" => {
                let number = at.value().map_or(Some(0), Value::as_i64);
                let number = number.ok_or("a number is not whole")?;
                return self.write(&number.to_string());
            }
            _ => {}
        }
        if let Ok(index) = STRUCTS.binary_search_by_key(&go_type, |(name, _)| name) {
            return self.fields(&STRUCTS[index], at);
        }
        match at.value() {
            None => Ok(()),
            Some(Value::String(text)) => self.write(text),
            Some(_) => Err("a string is written as something else"),
        }
    }

    fn fields(&mut self, (owner, fields): &Struct, at: At<'_>) -> Known<()> {
        self.begin("{");
        for (index, (name, go_type, json)) in fields.iter().enumerate() {
            self.separate(index);
            self.write(&format!("{name}:({go_type})"))?;
            let value = match *json {
                "" => at,
                "-" => At::default(),
                json => match json.strip_prefix('^') {
                    Some(json) => self.spec.field(json),
                    None => at.field(json),
                },
            };
            if (*owner, *name) == ("core.PodSpec", "Resources") {
                self.pod_resources(value)?;
            } else {
                self.value(go_type, value)?;
            }
        }
        self.end("}")
    }

    fn list(&mut self, item: &str, at: At<'_>) -> Known<()> {
        let written = at.written.is_some_and(is_set);
        let items = match at.value() {
            None => return self.write("<nil>"),
            Some(Value::Array(items)) if items.is_empty() && !written => return self.write("<nil>"),
            Some(Value::Array(items)) => items.len(),
            Some(_) => return Err("a list is written as something else"),
        };
        self.begin("[");
        for index in 0..items {
            self.separate(index);
            self.value(item, at.item(index))?;
        }
        self.end("]")
    }

    fn strings(&mut self, at: At<'_>) -> Known<()> {
        let Some(strings) = self.sorted(at)? else {
            return Ok(());
        };
        self.begin("map[");
        for (index, key) in strings.into_iter().enumerate() {
            self.separate(index);
            self.write(&format!("{key}:"))?;
            self.value("string", at.field(key))?;
        }
        self.end("]")
    }

    fn quantities(&mut self, at: At<'_>) -> Known<()> {
        let amounts = self.amounts(at)?;
        self.dump_amounts(amounts.as_ref())
    }

    /// The API rounds what is in a resource list.
    fn resource_list(&mut self, at: At<'_>) -> Known<()> {
        let amounts = self.amounts(at)?.map(rounded);
        self.dump_amounts(amounts.as_ref())
    }

    fn amounts(&self, at: At<'_>) -> Known<Option<Amounts>> {
        match at.written {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(amounts)) => {
                let amounts = amounts
                    .iter()
                    .map(|(resource, amount)| Ok((resource.clone(), quantity(Some(amount))?)));
                amounts.collect::<Known<_>>().map(Some)
            }
            Some(_) => Err("a list of resources is written as something else"),
        }
    }

    fn dump_amounts(&mut self, amounts: Option<&Amounts>) -> Known<()> {
        let Some(amounts) = amounts else {
            return self.write("<nil>");
        };
        self.begin("map[");
        for (index, (resource, amount)) in amounts.iter().enumerate() {
            self.separate(index);
            self.write(&format!("{resource}:"))?;
            self.quantity(amount);
        }
        self.end("]")
    }

    fn quantity(&mut self, quantity: &GoQuantity) {
        // It has a pointer in a struct in a struct.
        self.depth += 2;
        self.pass_pointer();
        self.depth -= 2;
        quantity.dump(&mut self.out);
    }

    /// The resources of the pod as a whole.
    fn pod_resources(&mut self, at: At<'_>) -> Known<()> {
        self.pass_pointer();
        if at.value().is_none() {
            return self.write("<nil>");
        }
        let resources = self.resources;
        let lists = [("limits", &resources.limits), ("requests", &resources.requests)];
        self.begin("{");
        for (json, amounts) in lists {
            let written = at.field(json).written.is_some_and(is_set);
            let amounts = (written || !amounts.is_empty()).then(|| rounded(amounts.clone()));
            let name = if json == "limits" { "Limits" } else { " Requests" };
            self.write(&format!("{name}:(core.ResourceList)"))?;
            self.dump_amounts(amounts.as_ref())?;
        }
        self.write(" Claims:([]core.ResourceClaim)")?;
        self.value("[]core.ResourceClaim", at.field("claims"))?;
        self.end("}")
    }

    fn int_or_string(&mut self, at: At<'_>) -> Known<()> {
        let (kind, number, text) = match at.value() {
            None => (0, 0, ""),
            Some(Value::String(text)) => (1, 0, text.as_str()),
            Some(number) => (0, number.as_i64().ok_or("a number is not whole")?, ""),
        };
        self.write(&format!(
            "{{Type:(intstr.Type){kind} IntVal:(int32){number} StrVal:(string){text}}}"
        ))
    }

    fn time(&mut self, at: At<'_>) -> Known<()> {
        let Some(text) = at.written.and_then(Value::as_str) else {
            return self.write("{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}");
        };
        let time: Timestamp = text.parse().map_err(|_| "a time is out of range")?;
        let nanoseconds = time.as_nanosecond();
        let seconds = i64::try_from(nanoseconds.div_euclid(1_000_000_000));
        let seconds = seconds.unwrap_or_default() + YEAR_1_TO_1970;
        let wall = nanoseconds.rem_euclid(1_000_000_000);
        // The pointer to the zone is a field of a struct in a struct.
        self.depth += 2;
        self.pass_pointer();
        let zone = match self.local_time {
            Some(_) => "<shown>",
            None => LOCAL_TIME,
        };
        self.local_time.get_or_insert(self.depth);
        self.depth -= 2;
        self.write(&format!(
            "{{Time:(time.Time){{wall:(uint64){wall} ext:(int64){seconds} loc:(*time.Location){zone}}}}}"
        ))
    }

    fn fields_v1(&mut self, at: At<'_>) -> Known<()> {
        let text = managed_fields(at.written, self.syntax);
        let bytes: Vec<_> = text.bytes().map(|byte| byte.to_string()).collect();
        self.write(&format!("{{Raw:([]uint8)[{}]}}", bytes.join(" ")))
    }

    /// The keys of a map, sorted. Writes it if there is none.
    fn sorted<'b>(&mut self, at: At<'b>) -> Known<Option<Vec<&'b str>>> {
        let fields = match at.pod.filter(|value| is_set(value)) {
            Some(Value::Object(fields)) => Some(fields),
            None => None,
            Some(_) => return Err("a map is written as something else"),
        };
        if fields.is_none_or(Map::is_empty) && !at.written.is_some_and(is_set) {
            self.write("<nil>")?;
            return Ok(None);
        }
        let mut keys: Vec<_> = fields
            .into_iter()
            .flat_map(|fields| fields.keys())
            .map(String::as_str)
            .collect();
        keys.sort_unstable();
        Ok(Some(keys))
    }

    /// `spew` forgets the pointers that are as deep as this one, or deeper.
    fn pass_pointer(&mut self) {
        self.local_time = self.local_time.filter(|depth| *depth < self.depth);
    }

    fn begin(&mut self, bracket: &str) {
        self.out.push_str(bracket);
        self.depth += 1;
    }

    fn end(&mut self, bracket: &str) -> Known<()> {
        self.depth -= 1;
        self.write(bracket)
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.out.push(' ');
        }
    }

    fn write(&mut self, text: &str) -> Known<()> {
        self.out.push_str(text);
        Ok(())
    }
}

fn rounded(amounts: Amounts) -> Amounts {
    amounts
        .into_iter()
        .map(|(resource, amount)| (resource, amount.round_up_to_milli()))
        .collect()
}
