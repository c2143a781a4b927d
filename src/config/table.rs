//! The macro that makes everything of the table of options, and the table's type.

use serde_json::Value as Json;
use toml::Value as Toml;

use super::Config;
use super::environment::VariableSpec;
use super::flag::FlagSpec;
use super::layer::{OptionValue, Setting};
use super::sourced::{Origin, Sourced};
use crate::secret::Secret;

/// One row of the table. Not every option can be set everywhere.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// The sentences that the manual, the reference, editors and `profile init` show.
    pub description: &'static str,
    pub flag: Option<FlagSpec>,
    pub variables: Option<VariableSpec>,
    pub key: Option<KeySpec>,
    /// The form of a value; empty if the description says it all.
    pub form: &'static str,
    /// Whether values accumulate over all layers.
    pub is_list: bool,
    /// Returns the value of a configuration.
    pub read: fn(&Config) -> Present,
}

/// An option in files.
#[derive(Debug, Clone, Copy)]
pub struct KeySpec {
    /// The key; `resources.cpus` is `cpus` in the table `resources`.
    pub name: &'static str,
    /// A value in TOML, for options without a default.
    pub example: &'static str,
    /// Returns the JSON schema of the value.
    pub schema: fn() -> Json,
    /// Lists what the first configuration sets, and what that opens compared to the second one.
    pub changes: fn(&Config, &Config) -> Vec<Change>,
}

impl OptionSpec {
    /// Returns the default, if there is one.
    pub fn default(&self) -> Option<Toml> {
        (self.read)(&Config::default()).items().into_iter().find_map(|item| item.value)
    }
}

/// The value of an option.
#[derive(Debug, Clone, PartialEq)]
pub enum Present {
    /// An option with a single value, if it has one.
    One(Option<Item>),
    /// An option that accumulates.
    Many(Vec<Item>),
}

impl Present {
    /// Returns all values.
    pub fn items(self) -> Vec<Item> {
        match self {
            Present::One(item) => item.into_iter().collect(),
            Present::Many(items) => items,
        }
    }
}

/// A value as a file has it, with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The key of an entry in a list by name.
    pub name: Option<String>,
    /// The value; `None` if it must not be shown.
    pub value: Option<Toml>,
    /// The value that must not be shown, to be compared only.
    pub secret: Option<Secret>,
    pub origin: Origin,
}

impl Item {
    fn new<T: OptionValue>(sourced: &Sourced<T>) -> Self {
        let (value, origin) = (&sourced.value, sourced.origin.clone());
        let secret = value.secret();
        let shown = secret.is_none().then(|| value.to_toml());
        Item { name: value.name().map(str::to_owned), value: shown, secret, origin }
    }

    /// Whether both have the same value, whatever their origins.
    pub fn is_same(&self, other: &Item) -> bool {
        self.name == other.name && self.value == other.value && self.secret == other.secret
    }
}

/// A value that a file sets.
#[derive(Debug, Clone)]
pub struct Change {
    pub item: Item,
    /// A sentence that tells the effect of the value.
    pub description: String,
    /// The protection that is lost; `None` if the value does not open the sandbox.
    pub opens: Option<&'static str>,
}

/// Returns the values of an option. In a list by name the first entry of a name counts, which is
/// the highest layer's.
fn counting<S: Setting>(setting: &S) -> impl Iterator<Item = &Sourced<S::Item>> {
    let all = setting.values();
    all.iter().enumerate().filter_map(move |(at, sourced)| {
        let name = sourced.value.name();
        let is_shadowed = name.is_some() && all[..at].iter().any(|above| above.value.name() == name);
        (!is_shadowed).then_some(sourced)
    })
}

pub fn present<S: Setting>(setting: &S, is_list: bool) -> Present {
    let mut items = counting(setting).map(Item::new);
    if is_list { Present::Many(items.collect()) } else { Present::One(items.next()) }
}

/// Lists the values that are not defaults. A value that is the same in `now` opens nothing.
pub fn changes<S: Setting>(
    says: &S,
    before: &S,
    now: &Config,
    describe: impl Fn(&S::Item) -> String,
    opens: impl Fn(&S::Item, &Config) -> Option<&'static str>,
) -> Vec<Change> {
    let is_new = |value: &S::Item| counting(before).all(|before| before.value != *value);
    counting(says)
        .filter(|sourced| sourced.origin != Origin::Default)
        .map(|sourced| Change {
            item: Item::new(sourced),
            description: describe(&sourced.value),
            opens: if is_new(&sourced.value) { opens(&sourced.value, now) } else { None },
        })
        .collect()
}

/// The `opens` of an option that never makes the sandbox weaker, whatever its value.
pub fn never<T>(_new: &T, _now: &Config) -> Option<&'static str> {
    None
}

/// Makes `Some` of an expression, or `None` of nothing.
macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

/// Takes the first of two expressions, if there are two.
macro_rules! first {
    ($only:expr) => {
        $only
    };
    ($first:expr, $second:expr) => {
        $first
    };
}

/// Fills in the default of an option that has one.
macro_rules! resolved {
    ($layer:expr) => {
        $layer
    };
    ($layer:expr, $default:expr) => {
        $layer.unwrap_or_else(|| Sourced::default($default))
    };
}

/// Defines every option once. A row is:
///
/// ```text
/// field: Type in Config = default => {
///     "Description, for the manual, the reference, editors and `profile init`.";
///     flag: field_of_options: Type = "--flag" ["VALUE"], "Heading", "Line of -h";
///     clap: |arg| …;                         // further settings of clap's argument
///     variables: ["BEST", "NEXT"];
///     note: "how a variable's value differs from a flag's";
///     reader: environment::function;         // reads the variable, unless it is like a flag
///     key: "keyInFiles", example "in TOML";  // an example unless there is a default
///     describe: |value| …;                   // with `key`: a sentence for `trust`
///     form: "values";                        // unless the type's own form fits
///     opens: |value, now| …;                 // what the value opens over `now`, or `never`
/// }
/// ```
///
/// `opens` is required: `trust` shows what a stranger's file opens, and must not miss an option.
macro_rules! options {
    ($(
        $name:ident: $type:ty $(= $default:expr)? => {
            $description:literal;
            $(
                flag: $field:ident: $given:ty = $flag:literal $([$value_name:literal])?, $heading:literal, $help:literal;
                $(clap: $clap:expr;)?
            )?
            $(
                variables: [$($variable:literal),+];
                $(note: $note:literal;)?
                $(reader: $reader:path;)?
            )?
            $(
                key: $key:literal $(, example $example:literal)?;
                describe: $describe:expr;
            )?
            $(form: $form:expr;)?
            opens: $opens:expr;
        }
    )+) => {
        /// The options of `sandpen run`, as text; wrong values are reported by the functions that
        /// use them.
        #[derive(Debug, Clone, Default)]
        pub struct Options {
            $($(#[doc = $description] pub $field: $given,)?)+
            /// Plans as if on this platform.
            pub assume_host: Option<Platform>,
            /// Prints errors only.
            pub quiet: bool,
            /// Prints what is done.
            pub verbose: bool,
        }

        /// The options that one layer sets. `None` and empty lists mean "not set".
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Settings {
            $(pub $name: <$type as Setting>::Layer,)+
        }

        /// Every option with its final value and its origin. Lists are ordered from the highest
        /// layer to the lowest.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Config {
            $(#[doc = $description] pub $name: $type,)+
            /// Warnings about the configuration itself.
            pub warnings: Vec<crate::warning::Warning>,
        }

        /// All options, in the order of the help and the reference.
        pub const OPTIONS: &[OptionSpec] = &[$(
            OptionSpec {
                description: $description,
                flag: optional!($(FlagSpec {
                    name: $flag,
                    field: stringify!($field),
                    value_name: optional!($($value_name)?),
                    heading: $heading,
                    help: $help,
                    configure: |argument| {
                        let argument = <$given as FlagValue>::configure::<<$type as Setting>::Item>(argument);
                        let configure: fn(Arg) -> Arg = first!($($clap,)? |argument| argument);
                        configure(argument)
                    },
                })?),
                variables: optional!($(VariableSpec {
                    names: &[$($variable),+],
                    note: first!($($note,)? ""),
                })?),
                key: optional!($(KeySpec {
                    name: $key,
                    example: first!($($example,)? ""),
                    schema: <<$type as Setting>::Layer as Layer>::schema,
                    changes: |says, now| changes(&says.$name, &now.$name, now, $describe, $opens),
                })?),
                form: first!($($form,)? <<$type as Setting>::Item as Value>::FORM),
                is_list: <<$type as Setting>::Layer as Layer>::IS_LIST,
                read: |config| present(&config.$name, <<$type as Setting>::Layer as Layer>::IS_LIST),
            },
        )+];

        impl Options {
            /// Returns the arguments that give the same options.
            pub(crate) fn to_arguments(&self) -> Vec<OsString> {
                // Without `..`: a field that is added must be used here.
                let Options { $($($field,)?)+ assume_host, quiet, verbose } = self;
                let mut arguments = Vec::new();
                $($(arguments.extend(FlagValue::to_arguments($field, $flag));)?)+
                arguments.extend(assume_host.and_then(|platform| {
                    Some(flag::argument("--assume-host", platform.to_possible_value()?.get_name().as_ref()))
                }));
                arguments.extend(quiet.to_arguments("--quiet"));
                arguments.extend(verbose.to_arguments("--verbose"));
                arguments
            }

            fn from_matches(matches: &mut ArgMatches) -> Self {
                Options {
                    $($($field: FlagValue::take(matches, stringify!($field)),)?)+
                    assume_host: matches.remove_one("assume_host"),
                    quiet: matches.get_flag("quiet"),
                    verbose: matches.get_flag("verbose"),
                }
            }
        }

        impl Settings {
            /// Combines this layer with a lower one.
            #[must_use]
            pub fn over(self, lower: Settings) -> Settings {
                Settings { $($name: self.$name.over(lower.$name),)+ }
            }

            /// Reads the flags; an empty value means "not set".
            pub fn from_flags(options: &Options) -> Result<Settings, ConfigError> {
                Ok(Settings {
                    $($($name: FromFlag::from_flag(&options.$field, $flag)?,)?)+
                    ..Settings::default()
                })
            }

            /// Reads the variables.
            pub fn from_environment(env: &Environment) -> Result<Settings, ConfigError> {
                Ok(Settings {
                    $($($name: environment::read(
                        env,
                        &[$($variable),+],
                        first!($($reader,)? Layer::from_variable),
                    )?,)?)+
                    ..Settings::default()
                })
            }

            /// Reads the value of a key in a file. Returns whether the key exists.
            pub fn read_key(&mut self, key: &str, node: &Node<'_>, file: FileContext<'_>) -> Result<bool, Problem> {
                match key {
                    $($($key => self.$name = Layer::read_node(node, file)?,)?)+
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }

        impl Config {
            pub(super) fn from_settings(settings: Settings) -> Self {
                Config {
                    $($name: resolved!(settings.$name $(, $default)?),)+
                    warnings: Vec::new(),
                }
            }
        }
    };
}

pub(super) use {first, optional, options, resolved};
