#include "harness/kernels/front/ptx.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <span>
#include <utility>

namespace plugfest::kernels::front {
namespace {

using Words = std::vector<std::string>;
using Call = std::optional<std::string>;

constexpr const char* kNamespace = "::plugfest::kernels::ptx::";

std::string trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return std::string(text);
}

// Splits at `separator` outside [] and {}.
Words split(std::string_view text, char separator) {
  Words parts;
  std::string part;
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    if (c == separator && depth == 0)
      parts.push_back(trimmed(std::exchange(part, "")));
    else
      part += c;
  }
  parts.push_back(trimmed(part));
  return parts;
}

// "ld.relaxed.sys.v4.u32 {%0,%1,%2,%3}, [%4+16]"
struct Instruction {
  std::string name;  // "ld"
  Words modifiers;   // "relaxed", "sys", "v4", "u32"
  Words operands;    // "{%0,%1,%2,%3}", "[%4+16]"
};

Instruction parse(const std::string& text) {
  Instruction one;
  const std::size_t end = std::min(text.find_first_of(" \t\n"), text.size());
  one.modifiers = split(text.substr(0, end), '.');
  one.name = one.modifiers.front();
  one.modifiers.erase(one.modifiers.begin());
  if (const std::string rest = trimmed(text.substr(end)); !rest.empty()) one.operands = split(rest, ',');
  return one;
}

const std::map<std::string, std::string, std::less<>> kTypes = {
    {"b8", "std::uint8_t"},   {"u8", "std::uint8_t"},   {"s8", "std::int8_t"},    {"b16", "std::uint16_t"},
    {"u16", "std::uint16_t"}, {"s16", "std::int16_t"},  {"b32", "std::uint32_t"}, {"u32", "std::uint32_t"},
    {"s32", "std::int32_t"},  {"b64", "std::uint64_t"}, {"u64", "std::uint64_t"}, {"s64", "std::int64_t"},
    {"f32", "float"},         {"f64", "double"}};
// Only of multimem.
const std::map<std::string, std::string, std::less<>> kPairs = {{"f16x2", "::plugfest::kernels::ptx::Halves"},
                                                                {"bf16x2", "::plugfest::kernels::ptx::Bfloats"}};
const std::map<std::string, std::string, std::less<>> kOrders = {
    {"weak", "::plugfest::kernels::kRelaxed"},    {"volatile", "::plugfest::kernels::kRelaxed"},
    {"relaxed", "::plugfest::kernels::kRelaxed"}, {"acquire", "::plugfest::kernels::kAcquire"},
    {"release", "::plugfest::kernels::kRelease"}, {"acq_rel", "::plugfest::kernels::kAcquireRelease"},
    {"sc", "::plugfest::kernels::kSequential"},   {"mmio", "::plugfest::kernels::kRelaxed"}};
const std::map<std::string, std::string, std::less<>> kOperations = {
    {"add", "Add"}, {"min", "Min"}, {"max", "Max"}, {"and", "And"},      {"or", "Or"},
    {"xor", "Xor"}, {"inc", "Inc"}, {"dec", "Dec"}, {"exch", "Exchange"}};
const std::map<std::string, std::string, std::less<>> kSpecial = {
    {"laneid", "plugfest_kernel_lane()"},
    {"lanemask_eq", "1u << plugfest_kernel_lane()"},
    {"lanemask_lt", "(1u << plugfest_kernel_lane()) - 1"},
    {"lanemask_le", "(2u << plugfest_kernel_lane()) - 1"},
    {"lanemask_ge", "~((1u << plugfest_kernel_lane()) - 1)"},
    {"lanemask_gt", "~((2u << plugfest_kernel_lane()) - 1)"},
    {"warpid", "::plugfest::kernels::ptx::warp_in_block()"},
    {"clock", "clock64()"},
    {"clock64", "clock64()"},
    {"globaltimer", "globaltimer()"},
    {"tid", "plugfest_kernel_thread_index()->"},
    {"ctaid", "plugfest_kernel_block_index()->"},
    {"ntid", "plugfest_kernel_block_size()->"},
    {"nctaid", "plugfest_kernel_grid_size()->"}};

// Hints and memory spaces that change nothing here.
bool is_hint(std::string_view word) {
  constexpr std::array kHints = {"cta",   "cluster", "gpu", "sys",   "global", "shared", "shared::cta",
                                 "local", "const",   "ca",  "cg",    "cs",     "lu",     "cv",
                                 "wb",    "wt",      "nc",  "param", "noftz"};
  return std::find(kHints.begin(), kHints.end(), word) != kHints.end() || word.starts_with("L1::") ||
         word.starts_with("L2::") || word.starts_with("level::");
}

// What the modifiers of an access to memory say.
struct Access {
  std::string type;
  std::string order = "::plugfest::kernels::kRelaxed";
  std::string operation;
  std::size_t count = 1;
  bool is_complete = false;  // false: a modifier is unknown
};

Access access_of(std::span<const std::string> modifiers, bool with_pairs) {
  Access access;
  for (const std::string& word : modifiers)
    if (const auto order = kOrders.find(word); order != kOrders.end())
      access.order = order->second;
    else if (const auto type = kTypes.find(word); type != kTypes.end())
      access.type = type->second;
    else if (const auto pair = kPairs.find(word); with_pairs && pair != kPairs.end())
      access.type = pair->second;
    else if (const auto name = kOperations.find(word); name != kOperations.end())
      access.operation = name->second;
    else if (word == "v2" || word == "v4" || word == "v8")
      access.count = static_cast<std::size_t>(word[1] - '0');
    else if (!is_hint(word) && !(with_pairs && word == "acc::f32"))
      return access;
  access.is_complete = !access.type.empty();
  return access;
}

bool is_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  if (text.starts_with("0x")) text.remove_prefix(2);
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0 || c == 'U'; });
}

// A register, as the variable of that operand, or a number.
Call scalar(const std::string& text, std::size_t operands) {
  if (is_number(text)) return text;
  if (text.size() < 2 || text[0] != '%' || text[1] == '%') return std::nullopt;
  std::size_t number = 0;
  for (const char c : text.substr(1)) {
    if (c < '0' || c > '9' || number > 99) return std::nullopt;
    number = number * 10 + static_cast<std::size_t>(c - '0');
  }
  if (number >= operands) return std::nullopt;
  return fmt::format("plugfest_{}", number);
}

// "[%0+16]"
Call address(const std::string& text, std::size_t operands) {
  if (!text.starts_with('[') || !text.ends_with(']')) return std::nullopt;
  const std::string inner = text.substr(1, text.size() - 2);
  const std::size_t plus = inner.find('+');
  const Call base = scalar(trimmed(inner.substr(0, plus)), operands);
  const std::string offset = plus == inner.npos ? "0" : trimmed(inner.substr(plus + 1));
  if (!base || !is_number(offset)) return std::nullopt;
  return fmt::format("{}address({}, {})", kNamespace, *base, offset);
}

// "%0", or "{%0,%1}" for `count` = 2, each after ", ".
Call list(const std::string& text, std::size_t count, std::size_t operands) {
  Words parts = {text};
  if (text.starts_with('{') && text.ends_with('}')) parts = split(text.substr(1, text.size() - 2), ',');
  if (parts.size() != count) return std::nullopt;
  std::string joined;
  for (const std::string& part : parts) {
    const Call one = scalar(part, operands);
    if (!one) return std::nullopt;
    joined += ", " + *one;
  }
  return joined;
}

// One instruction and the number of operands of its statement.
struct Input {
  const Instruction& instruction;
  const AsmStatement& statement;

  std::size_t operands() const { return statement.operands.size(); }
  const Words& words() const { return instruction.operands; }
  std::string place() const { return fmt::format("{{{}, {}}}", literal(statement.file), statement.line); }
  Call value(std::size_t i) const { return i < words().size() ? scalar(words()[i], operands()) : std::nullopt; }
};

Call memory(const Input& in, bool is_load, bool is_multimem) {
  const std::span<const std::string> modifiers(in.instruction.modifiers);
  const Access access = access_of(is_multimem ? modifiers.subspan(1) : modifiers, is_multimem);
  if (!access.is_complete || in.words().size() != 2) return std::nullopt;
  const Call at = address(in.words()[is_load ? 1 : 0], in.operands());
  const Call values = list(in.words()[is_load ? 0 : 1], access.count, in.operands());
  if (!at || !values) return std::nullopt;
  if (!is_multimem) {
    if (!access.operation.empty()) return std::nullopt;
    return fmt::format("{}{}<{}>({}, {}{})", kNamespace, is_load ? "load" : "store", access.type, *at, access.order,
                       *values);
  }
  const bool stores = modifiers.front() == "st";
  if (stores != access.operation.empty()) return std::nullopt;
  if (stores) return fmt::format("{}multimem_store<{}>({}{})", kNamespace, access.type, *at, *values);
  return fmt::format("{0}{1}<{2}>({0}{3}(), {4}{5})", kNamespace, is_load ? "multimem_load" : "multimem_update",
                     access.type, access.operation, *at, *values);
}

Call multimem(const Input& in) {
  const Words& modifiers = in.instruction.modifiers;
  if (modifiers.empty()) return std::nullopt;
  if (modifiers.front() == "ld_reduce") return memory(in, true, true);
  if (modifiers.front() == "st" || modifiers.front() == "red") return memory(in, false, true);
  return std::nullopt;
}

// red [a], b; atom d, [a], b; atom.cas d, [a], b, c.
Call atomic(const Input& in) {
  const bool returns = in.instruction.name == "atom";
  Words modifiers = in.instruction.modifiers;
  const bool compares = returns && std::erase(modifiers, "cas") > 0;
  const Access access = access_of(modifiers, false);
  const std::size_t first = returns ? 1 : 0;
  if (!access.is_complete || access.count != 1 || access.operation.empty() != compares ||
      in.words().size() != first + (compares ? 3 : 2))
    return std::nullopt;
  const Call at = address(in.words()[first], in.operands()), operand = in.value(first + 1);
  if (!at || !operand) return std::nullopt;
  std::string call;
  if (compares) {
    const Call wanted = in.value(first + 2);
    if (!wanted) return std::nullopt;
    call = fmt::format("{}compare_and_swap<{}>({}, {}, {})", kNamespace, access.type, *at, *operand, *wanted);
  } else {
    call = fmt::format("{0}update<{1}>({0}{2}(), {3}, {4})", kNamespace, access.type, access.operation, *at, *operand);
  }
  if (!returns) return call;
  const Call result = in.value(0);
  return result ? Call(fmt::format("{}set({}, {})", kNamespace, *result, call)) : std::nullopt;
}

Call special_register(const std::string& text) {
  std::string name = text.substr(2);
  std::string dimension;
  if (const std::size_t dot = name.find('.'); dot != name.npos) {
    dimension = name.substr(dot + 1);
    name.resize(dot);
  }
  const auto found = kSpecial.find(name);
  if (found == kSpecial.end() || found->second.ends_with("->") == dimension.empty()) return std::nullopt;
  if (!dimension.empty() && dimension != "x" && dimension != "y" && dimension != "z") return std::nullopt;
  return found->second + dimension;
}

// mov and cvta: %0 from a register, a number or a special register; {%0,%1} from %2; %0 from {%1,%2}.
Call move(const Input& in) {
  if (in.instruction.modifiers.empty() || in.words().size() != 2) return std::nullopt;
  const std::string &to = in.words()[0], &from = in.words()[1];
  const auto type = kTypes.find(in.instruction.modifiers.back());
  if (type == kTypes.end()) return std::nullopt;
  if (from.starts_with("%%")) {
    const Call target = in.value(0), source = special_register(from);
    if (!target || !source) return std::nullopt;
    return fmt::format("{}set({}, static_cast<{}>({}))", kNamespace, *target, type->second, *source);
  }
  if (to.starts_with('{') || from.starts_with('{')) {
    const bool packs = from.starts_with('{');
    const Call parts = list(packs ? from : to, 2, in.operands()), whole = in.value(packs ? 0 : 1);
    if (!parts || !whole) return std::nullopt;
    return fmt::format("{}{}<{}>({}{})", kNamespace, packs ? "pack" : "unpack", type->second, *whole, *parts);
  }
  const Call target = in.value(0), source = in.value(1);
  if (!target || !source) return std::nullopt;
  return fmt::format("{0}set({1}, {0}get<{2}>({3}))", kNamespace, *target, type->second, *source);
}

Call cvta(const Input& in) {
  const Words& words = in.instruction.modifiers;
  return !words.empty() && words.back() == "u64" ? move(in) : std::nullopt;
}

Call fence(const Input&) { return "__threadfence_system()"; }
Call nothing(const Input&) { return "static_cast<void>(0)"; }
Call yield(const Input&) { return "plugfest_kernel_yield()"; }

Call activemask(const Input& in) {
  const Call target = in.value(0);
  return target ? Call(fmt::format("{}set({}, __activemask())", kNamespace, *target)) : std::nullopt;
}

Call trap(const Input& in) { return fmt::format("plugfest_kernel_fault(\"trap\", {})", in.place()); }

// bar.sync a{, b}; barrier.sync a{, b}; bar.warp.sync mask.
Call barrier(const Input& in) {
  const Words& words = in.instruction.modifiers;
  const bool of_warp = words == Words{"warp", "sync"};
  const bool known = of_warp || words == Words{"sync"} || words == Words{"cta", "sync"} ||
                     words == Words{"sync", "aligned"} || words == Words{"cta", "sync", "aligned"};
  const Call first = in.value(0);
  if (!known || !first || in.words().size() > 2) return std::nullopt;
  if (of_warp)
    return fmt::format("::plugfest::kernels::exchange({0}get<std::uint32_t>({1}), 0, {2})", kNamespace, *first,
                       in.place());
  const Call threads = in.words().size() == 2 ? in.value(1) : Call("0");
  if (!threads) return std::nullopt;
  return fmt::format("plugfest_kernel_barrier({0}get<unsigned>({1}), {0}get<unsigned>({2}), {3})", kNamespace, *first,
                     *threads, in.place());
}

Call load(const Input& in) { return memory(in, true, false); }
Call store(const Input& in) { return memory(in, false, false); }

using Translate = Call (*)(const Input&);
const std::map<std::string, Translate, std::less<>> kTable = {{"activemask", activemask},
                                                              {"applypriority", nothing},
                                                              {"atom", atomic},
                                                              {"bar", barrier},
                                                              {"barrier", barrier},
                                                              {"cvta", cvta},
                                                              {"discard", nothing},
                                                              {"fence", fence},
                                                              {"griddepcontrol", nothing},
                                                              {"ld", load},
                                                              {"membar", fence},
                                                              {"mov", move},
                                                              {"multimem", multimem},
                                                              {"nanosleep", yield},
                                                              {"prefetch", nothing},
                                                              {"prefetchu", nothing},
                                                              {"red", atomic},
                                                              {"st", store},
                                                              {"trap", trap}};

}  // namespace

std::string literal(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n')
      quoted += "\\n";
    else
      quoted += c;
  }
  return quoted + '"';
}

std::optional<std::string> translate(const AsmStatement& statement) {
  std::string calls;
  for (const std::string& text : split(statement.text, ';')) {
    if (text.empty()) continue;
    const Instruction instruction = parse(text);
    const auto known = kTable.find(instruction.name);
    if (known == kTable.end()) return std::nullopt;
    const Call call = known->second({instruction, statement});
    if (!call) return std::nullopt;
    calls += *call + "; ";
  }
  std::string variables;
  for (std::size_t i = 0; i < statement.operands.size(); ++i)
    variables += fmt::format("{} plugfest_{} = ({}); ", i < statement.outputs ? "auto&" : "[[maybe_unused]] const auto",
                             i, statement.operands[i].expression);
  return variables + calls;
}

}  // namespace plugfest::kernels::front
