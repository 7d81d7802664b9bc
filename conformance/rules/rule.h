// A rule: one testable clause of the plugin contract, declared next to the code that checks it; the catalog of rules,
// and their selection.
//
//   RULE(CN_06, Must, ApiRange::all(),
//        .title = "connect never waits for the peer",
//        .text = "Unfinished is Success with *sendComm NULL: ...",
//        .source = "ext-net README; ncclProxyService drives all connections of a GPU in one loop",
//        .why = "Two ranks that connect to each other before either accepts wait forever.",
//        .check = "Stops the receiver and calls connect 32 times. Each call must return.",
//        .blind = "A wait that starts only after the peer has answered.",
//        .faults = {{"NVIDIA/nccl#616", "connect waited for accept"}}) {
//     Endpoint sender = near_endpoint(), receiver = far_endpoint();
//     ...
//   }
//
// The body is a member function of a `RuleBody` (rule_body.h), which provides ranks, faults and random numbers.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/plugin/layout.h"

namespace plugfest::conformance {

class RuleBody;

/// How serious a broken rule is. Must: a released NCCL misbehaves. Should: a document demands it, or a program other
/// than a released NCCL needs it; a broken rule is a warning, even if a call crashes or hangs, and a failure with
/// --strict. Info: the run only records what it observed.
enum class Level { kMust, kShould, kInfo };

/// Returns the letter that reports show: 'M', 'S' or 'I'.
char level_letter(Level level);

/// The interface and its versions to which a rule applies, and whether the rule requires a shared library.
struct ApiRange {
  int first = 6;
  int last = std::numeric_limits<int>::max();
  /// False: the rule is about a shared library, and not applicable to transports that are built into NCCL.
  bool built_ins = true;
  plugin::InterfaceKind interface = plugin::InterfaceKind::kNet;

  static constexpr ApiRange all() { return {}; }
  static constexpr ApiRange coll_net() { return {.built_ins = false, .interface = plugin::InterfaceKind::kCollNet}; }
  /// GIN and RMA.
  static constexpr ApiRange one_sided(int first = 11, int last = std::numeric_limits<int>::max()) {
    return {.first = first, .last = last, .interface = plugin::InterfaceKind::kRma};
  }
  static constexpr ApiRange profiler(int first = 1) {
    return {.first = first, .built_ins = false, .interface = plugin::InterfaceKind::kProfiler};
  }
  static constexpr ApiRange tuner(int first = 2) {
    return {.first = first, .built_ins = false, .interface = plugin::InterfaceKind::kTuner};
  }
  static constexpr ApiRange env() { return {.first = 1, .built_ins = false, .interface = plugin::InterfaceKind::kEnv}; }
  static constexpr ApiRange from(int version) { return {.first = version}; }
  static constexpr ApiRange up_to(int version) { return {.last = version}; }
  constexpr ApiRange libraries_only() const {
    ApiRange range = *this;
    range.built_ins = false;
    return range;
  }

  /// Rules of RMA are also rules of GIN.
  constexpr bool is_about(plugin::InterfaceKind kind) const {
    return kind == interface || (kind == plugin::InterfaceKind::kGin && interface == plugin::InterfaceKind::kRma);
  }
  constexpr bool contains(int version) const { return first <= version && version <= last; }
  /// "all versions", "v11 and later", "up to v10", "v9 to v10".
  std::string describe() const;
};

/// A bug in a released program that motivates a rule.
struct RealFault {
  /// "aws/aws-ofi-nccl#875": an issue or a pull request on GitHub; "google/nccl-fastsocket": seen in the source.
  std::string_view reference;
  /// What the program did: "closeSend waited for a comm that no accept had created".
  std::string_view what;

  /// The URL: "https://github.com/aws/aws-ofi-nccl/issues/875".
  std::string url() const;
};

/// What a rule declares: its text, and what its body requires and does. The text consists of complete sentences, except
/// for the title. `plugfest explain` prints it.
struct Declaration {
  /// A short form for the console: "connect never waits for the peer".
  std::string_view title;
  /// The clause: what a plugin has to do.
  std::string_view text;
  /// The source: a function of NCCL, a document, an issue.
  std::string_view source;
  /// What happens in NCCL when a plugin breaks the rule.
  std::string_view why = {};
  /// What the body does and compares.
  std::string_view check = {};
  /// Bugs that the body cannot detect: a plugin that passes can still have them.
  std::string_view blind = {};
  std::vector<RealFault> faults = {};
  /// How many ranks the body uses. With more than 2, each rank is on its own host and reaches each other rank.
  std::size_t ranks = 2;
  /// The body uses as many ranks as there are, up to this number, if it is larger than `ranks`, which must exceed 2.
  std::size_t most_ranks = 0;
  /// Whether the body needs a CUDA GPU or an emulated one.
  bool gpu = false;
  /// Whether the body runs NCCL itself. Such a rule runs only on request, and alone, since NCCL's threads poll.
  bool runs_nccl = false;
  /// Whether the body calls be_alone(), stops a rank or changes the network, so that no other rule may run meanwhile.
  /// The suite runs these rules, one by one, after all others.
  bool alone = false;
  /// Whether the body takes a minute or gigabytes of memory. Such a rule runs only on request.
  bool thorough = false;
  /// Whether the body needs two links between its hosts. It is not applicable on other topologies.
  bool two_links = false;
  /// Whether the rule starts before others. These rules are on different paths as far as possible. If calls of a plugin
  /// block, several of these rules hang at the same time, each in another call. Calls that hang at the same places
  /// later are cut short (Limits::blocked_seconds).
  bool starts_first = false;
  /// Whether no other rule can be tested if this one is broken, since the plugin cannot be loaded: it runs before all
  /// others. At most one rule of an interface.
  bool loads_plugin = false;
  /// Whether a result code that no plugin may return breaks this rule, regardless of the rule in which it was returned.
  /// At most one rule of an interface.
  bool covers_undefined_codes = false;
};

struct Rule {
  /// "CN-06".
  std::string id;
  Level level = Level::kMust;
  ApiRange apis = {};
  Declaration declaration = {};
  std::unique_ptr<RuleBody> (*make_body)() = nullptr;

  /// The group: "CN".
  std::string_view group() const { return std::string_view(id).substr(0, id.find('-')); }
  bool runs_alone() const { return declaration.alone || declaration.runs_nccl; }
};

/// Rules in the order of the contract: by group, as in group_position(), then by number. The position of a rule
/// determines its path, and therefore does not depend on the selection.
class Catalog {
 public:
  /// Errors: std::logic_error if the id exists already or does not have the form "CN-06".
  void add(Rule rule);
  const std::vector<Rule>& rules() const { return rules_; }
  std::vector<std::string> ids() const;
  /// Returns null if there is no such rule. `id`: "CN-06" in any letter case; '_' may replace '-'.
  const Rule* find(std::string_view id) const;

 private:
  std::vector<Rule> rules_;
};

/// Returns the rules that are linked into this program.
const Catalog& catalog();

/// Adds a rule to the program's catalog during static initialization.
struct RuleRegistration {
  RuleRegistration(std::string_view identifier, Level level, ApiRange apis, Declaration declaration,
                   std::unique_ptr<RuleBody> (*make_body)());
};

/// A set of rules that can be selected by name.
struct Group {
  /// "@smoke", as in --rule.
  std::string_view name;
  /// "a few fast rules from every part of the contract"
  std::string_view title;
  std::span<const std::string_view> rules;
};

std::span<const Group> groups();
/// Errors: std::runtime_error with a suggestion if there is no group of that name.
const Group& group_named(std::string_view name);

/// The title of the rules "LD-…": "the library file". `letters`: "LD". Empty if there are no such rules.
std::string_view group_title(std::string_view letters);
/// The position of the group `letters` in the contract; unknown groups come last.
std::size_t group_position(std::string_view letters);

/// The optional rules that a run includes.
struct Extent {
  bool nccl = false;      ///< rules that run NCCL
  bool thorough = false;  ///< rules that take a minute or gigabytes of memory

  static constexpr Extent everything() { return {true, true}; }
  bool includes(const Declaration& rule) const { return (nccl || !rule.runs_nccl) && (thorough || !rule.thorough); }
};

/// Returns the rules of `extent` that match any of `patterns` ("CN-06", "cn_06", "CN-*", "XF-2?", "CN-06,XF-*"), in
/// catalog order; without patterns all of them. "@smoke" is a group: see groups(). Errors: std::runtime_error that
/// names a pattern without a match in the catalog.
std::vector<const Rule*> select_rules(const Catalog& catalog, std::span<const std::string> patterns,
                                      const Extent& extent = Extent::everything());

/// Whether one of `patterns` matches only rules that run NCCL, and thus requests NCCL. Errors: as select_rules().
bool ask_for_nccl(const Catalog& catalog, std::span<const std::string> patterns);

}  // namespace plugfest::conformance

#define RULE(identifier, level, apis, ...) \
  RULE_ON(::plugfest::conformance::RuleBody, identifier, level, apis, __VA_ARGS__)

/// Like RULE, for a body that derives from `base`, a RuleBody that several rules share.
#define RULE_ON(base, identifier, level, apis, ...)                                                                  \
  namespace {                                                                                                        \
  struct Body_##identifier final : base {                                                                            \
    void run() override;                                                                                             \
  };                                                                                                                 \
  const ::plugfest::conformance::RuleRegistration register_##identifier{                                             \
      #identifier, ::plugfest::conformance::Level::k##level, ::plugfest::conformance::apis,                          \
      ::plugfest::conformance::Declaration{__VA_ARGS__},                                                             \
      []() -> std::unique_ptr<::plugfest::conformance::RuleBody> { return std::make_unique<Body_##identifier>(); }}; \
  }                                                                                                                  \
  void Body_##identifier::run()
