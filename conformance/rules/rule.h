// A rule: one testable clause of the plugin contract, declared once, next to the code that checks it.
//
//   RULE(CN_06, Must, ApiRange::all(),
//        .title = "connect never waits for the peer",
//        .text = "Unfinished is Success with *sendComm NULL: ...",
//        .source = "ext-net README; ncclProxyService drives all connections of a GPU in one loop") {
//     Endpoint sender = near_endpoint(), receiver = far_endpoint();
//     ...
//   }
//
// The body is a member function of a `RuleBody` (rule_body.h), which gives it its ranks and its random numbers.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace plugfest::conformance {

class RuleBody;

/// How much a broken rule weighs. Must: a shipped NCCL release misbehaves. Should: documented, or needed by a real
/// consumer; a warning, unless the run is strict. Info: what was observed is recorded.
enum class Level { kMust, kShould, kInfo };

/// The letter the catalogue shows: 'M', 'S' or 'I'.
char level_letter(Level level);

/// The versions of the net interface that a rule exists for, and whether it asks for a library of its own.
struct ApiRange {
  int first = 6;
  int last = std::numeric_limits<int>::max();
  /// False: the rule speaks of a shared library and is n/a for transports built into NCCL.
  bool built_ins = true;

  static constexpr ApiRange all() { return {}; }
  static constexpr ApiRange from(int version) { return {.first = version}; }
  static constexpr ApiRange up_to(int version) { return {.last = version}; }
  constexpr ApiRange libraries_only() const { return {.first = first, .last = last, .built_ins = false}; }

  constexpr bool contains(int version) const { return first <= version && version <= last; }
  /// "all versions", "v11 and later", "up to v10", "v9 to v10".
  std::string describe() const;
};

/// What a rule demands and where that comes from; constant text.
struct Clause {
  /// A few words, as the console shows them: "connect never waits for the peer".
  std::string_view title;
  /// One or more whole sentences.
  std::string_view text;
  /// Where it can be read: a function of NCCL, a document, an issue.
  std::string_view source;
};

struct Rule {
  /// "CN-06".
  std::string id;
  Level level = Level::kMust;
  ApiRange apis = {};
  Clause clause = {};
  /// A fresh body for one run.
  std::unique_ptr<RuleBody> (*make_body)() = nullptr;

  /// The group: "CN".
  std::string_view group() const { return std::string_view(id).substr(0, id.find('-')); }
};

/// Rules in the order of the contract: groups LD, IN, DP, CN, MR, XF, TS, FL, CL, ER, TH, then by number. A rule's
/// position fixes its path and so must not depend on what is selected.
class Catalogue {
 public:
  /// Errors: std::logic_error when the id is taken or not of the form "CN-06".
  void add(Rule rule);
  const std::vector<Rule>& rules() const { return rules_; }
  /// Null when there is none. `id` as the user types it: any letter case, "CN_06" too.
  const Rule* find(std::string_view id) const;

 private:
  std::vector<Rule> rules_;
};

/// Every rule that is linked into this program.
const Catalogue& catalogue();

/// Declares a rule to the program's catalogue during static initialisation.
struct RuleDeclaration {
  RuleDeclaration(std::string_view identifier, Level level, ApiRange apis, Clause clause,
                  std::unique_ptr<RuleBody> (*make_body)());
};

}  // namespace plugfest::conformance

#define RULE(identifier, level, apis, ...) \
  RULE_ON(::plugfest::conformance::RuleBody, identifier, level, apis, __VA_ARGS__)

/// The same for a body that derives from `base`, itself a RuleBody, which holds what several rules share.
#define RULE_ON(base, identifier, level, apis, ...)                                                                  \
  namespace {                                                                                                        \
  struct Body_##identifier final : base {                                                                            \
    void run() override;                                                                                             \
  };                                                                                                                 \
  const ::plugfest::conformance::RuleDeclaration declare_##identifier{                                               \
      #identifier, ::plugfest::conformance::Level::k##level, ::plugfest::conformance::apis,                          \
      ::plugfest::conformance::Clause{__VA_ARGS__},                                                                  \
      []() -> std::unique_ptr<::plugfest::conformance::RuleBody> { return std::make_unique<Body_##identifier>(); }}; \
  }                                                                                                                  \
  void Body_##identifier::run()
