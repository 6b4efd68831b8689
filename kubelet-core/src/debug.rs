//! `Debug` of types with parts that cannot be shown.

/// Implements `Debug` for a type with parts that cannot be shown. It shows the name of the type, and these fields or what these
/// methods return.
///
/// ```
/// struct Door {
///     number: u8,
///     open: Box<dyn Fn()>,
/// }
///
/// kubelet_core::impl_debug!(Door: number);
///
/// let door = Door { number: 7, open: Box::new(|| {}) };
/// (door.open)();
/// assert_eq!(format!("{door:?}"), "Door { number: 7, .. }");
/// ```
#[macro_export]
macro_rules! impl_debug {
    ($type:ident $(<$parameter:ident>)? $(: $($field:ident $(($($argument:expr)?))?),+)?) => {
        impl $(<$parameter>)? ::std::fmt::Debug for $type $(<$parameter>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($type))
                    $($(.field(stringify!($field), &self.$field $(($($argument)?))?))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}
