#include "harness/kernels/front/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "harness/kernels/front/nccl_waits.h"
#include "harness/kernels/front/ptx.h"
#include "harness/kernels/front/tokens.h"

namespace plugfest::kernels::front {
namespace {

constexpr std::array<std::string_view, 4> kBuiltins = {"threadIdx", "blockIdx", "blockDim", "gridDim"};

struct Edit {
  std::size_t offset;
  std::size_t length;
  std::string text;
};

class Rewriter {
 public:
  explicit Rewriter(std::string_view text) : text_(text), tokens_(tokenize(text)), list_(tokens_.list) {}

  std::string run() {
    for (const Directive& directive : tokens_.directives)
      if (directive.text.starts_with("#pragma unroll") || directive.text.starts_with("#pragma nounroll"))
        edits_.push_back({directive.offset, directive.text.size(), ""});
    for (std::size_t i = 0; i < list_.size(); ++i) {
      const Token& token = list_[i];
      if (token.is("{"))
        blocks_.push_back(opens_namespace(i));
      else if (token.is("}") && !blocks_.empty())
        blocks_.pop_back();
      else if (token.is("__global__"))
        kernel(i);
      else if (token.is("__shared__"))
        shared(i);
      else if (token.is("<<<"))
        launch(i);
      else if (token.is("asm") || token.is("__asm__") || token.is("__asm"))
        assembly(i);
      else if (token.is("IntSeqUpTo") && i > 0 && is(i - 1, ","))
        insert(i, "typename ");  // NCCL 2.28.9, utility.h, line 392: only NVIDIA's compiler needs none
      else if (has_value(i))
        replace(i, i, text_of(i, i + 1));
      else if (is(i + 1, "("))
        wait(i);
    }
    return edited();
  }

 private:
  [[noreturn]] void fail(std::size_t i, const std::string& what) const { tokens_.fail(i, what); }
  bool is(std::size_t i, std::string_view word) const { return tokens_.is(i, word); }
  bool is_identifier(std::size_t i) const { return i < list_.size() && list_[i].kind == Kind::kIdentifier; }

  // Inserts text before, or after, the token i.
  void insert(std::size_t i, std::string text) { edits_.push_back({list_[i].offset, 0, std::move(text)}); }
  void insert_after(std::size_t i, std::string text) { edits_.push_back({list_[i].end(), 0, std::move(text)}); }
  // Replaces the tokens first to last.
  void replace(std::size_t first, std::size_t last, std::string text) {
    const std::size_t offset = list_[first].offset, length = list_[last].end() - offset;
    // The following text keeps its lines.
    if (text_.substr(offset, length).find('\n') != std::string_view::npos) {
      const Token& end = list_[last];
      text += fmt::format("\n# {} {}{}\n", end.line, literal(tokens_.files[end.file]), end.system ? " 3" : "");
    }
    edits_.push_back({offset, length, std::move(text)});
  }

  // The text of the tokens first to last - 1, in one line.
  std::string text_of(std::size_t first, std::size_t last) const {
    std::string text;
    for (std::size_t i = first; i < last; ++i) {
      if (i > first && list_[i].offset != list_[i - 1].end()) text += ' ';
      text += has_value(i) ? value(i) : std::string(list_[i].text);
    }
    return text;
  }

  std::size_t closing(std::size_t i) const { return tokens_.closing(i); }
  std::size_t opening(std::size_t i) const { return tokens_.opening(i); }

  // Whether the { at i begins a namespace or extern "C".
  bool opens_namespace(std::size_t i) const {
    if (i > 1 && list_[i - 1].kind == Kind::kString && is(i - 2, "extern")) return true;
    for (std::size_t at = i; at-- > 0;) {
      if (is(at, "namespace")) return true;
      if (is(at, ")") && at > 0)
        at = opening(at);  // an attribute
      else if (!is_identifier(at) && !is(at, "::"))
        return false;
    }
    return false;
  }

  // threadIdx in threadIdx.x; name in reinterpret_cast<float*>(name), after `extern __shared__ char name[];`.
  bool has_value(std::size_t i) const {
    if (is(i + 1, ")") && i > 0 && is(i - 1, "("))
      return std::find(arrays_.begin(), arrays_.end(), list_[i].text) != arrays_.end();
    if (std::find(kBuiltins.begin(), kBuiltins.end(), list_[i].text) == kBuiltins.end() || !is(i + 1, "."))
      return false;
    return i == 0 || !(is(i - 1, ".") || is(i - 1, "->") || is(i - 1, "::"));
  }

  std::string value(std::size_t i) const {
    const bool after_colon = i > 0 && is(i - 1, ":");  // in b?0:threadIdx.x, ::: would be read as :: and :
    return fmt::format("{}::plugfest::kernels::value({})", after_colon ? " " : "", list_[i].text);
  }

  // __global__ void name(parameters) { body }
  void kernel(std::size_t i) {
    replace(i, i, " ");
    int angles = 0;
    std::size_t at = i + 1;
    for (;; ++at) {
      if (at >= list_.size() || is(at, ";") || is(at, "{") || is(at, "}")) return;  // no function
      if (is(at, "<")) ++angles;
      if (is(at, ">")) --angles;
      if (is(at, ">>")) angles -= 2;
      if (!is(at, "(")) continue;
      const bool is_attribute = is(at - 1, "__attribute__") || is(at - 1, "alignas") || is(at - 1, "decltype");
      if (angles == 0 && is_identifier(at - 1) && !is_attribute) break;
      at = closing(at);
    }
    const std::string name(list_[at - 1].text);
    std::size_t body = closing(at) + 1;
    while (body < list_.size() && !is(body, "{") && !is(body, ";")) body = is(body, "(") ? closing(body) + 1 : body + 1;
    if (!is(body, "{")) return;  // a declaration
    insert_after(body, fmt::format(" ::plugfest::kernels::enter(\"{}\", [=]() mutable {{", name));
    insert(closing(body), "}); ");
  }

  // A function of NCCL's headers that waits: void wait(parameters) const { body }
  void wait(std::size_t i) {
    const std::string_view expects = wait_of(tokens_.files[list_[i].file], list_[i].text);
    if (expects.empty()) return;
    std::size_t body = closing(i + 1) + 1;
    if (is(body, "const")) ++body;
    if (is(body, "{")) insert_after(body, fmt::format(" ::plugfest::kernels::Expects plugfest_expects({});", expects));
  }

  // A variable in the memory of a block.
  void shared(std::size_t i) {
    std::size_t first = i, last = i;
    while (first > 0 && !is(first - 1, ";") && !is(first - 1, "{") && !is(first - 1, "}") && !is(first - 1, ":"))
      --first;
    bool is_extern = false, is_static = false;
    for (; last < list_.size() && !is(last, ";") && !is(last, "="); ++last)
      if (is(last, "(") || is(last, "[") || is(last, "{")) last = closing(last);
    for (std::size_t at = first; at < last; ++at) {
      is_extern = is_extern || is(at, "extern");
      is_static = is_static || is(at, "static");
    }
    if (is_extern) return dynamic_shared(first, last);
    replace(i, i, is_static ? "thread_local" : "static thread_local");
    if (!is(i + 1, "alignas") || !is(i + 2, "(")) return;
    replace(i + 1, i + 1, "__attribute__((aligned");  // the place of alignas is before all other words
    insert_after(closing(i + 2), "))");
  }

  // extern __shared__ T name[];
  void dynamic_shared(std::size_t first, std::size_t last) {
    std::size_t bracket = first;
    while (bracket < last && !(is(bracket, "[") && is(bracket + 1, "]"))) ++bracket;
    if (bracket == last || bracket == first || !is_identifier(bracket - 1) || !is(last, ";"))
      fail(first, "expected one array without a size, as in extern __shared__ float name[];");
    std::string type;
    for (std::size_t at = first; at + 1 < bracket; ++at) {
      if (is(at, "extern") || is(at, "__shared__")) continue;
      if ((is(at, "__attribute__") || is(at, "alignas")) && is(at + 1, "("))
        at = closing(at + 1);
      else
        type += std::string(list_[at].text) + ' ';
    }
    const std::string_view name = list_[bracket - 1].text;
    const std::string bounds = text_of(bracket, last);
    const bool in_function = std::find(blocks_.begin(), blocks_.end(), false) != blocks_.end();
    if (!in_function) arrays_.push_back(name);
    replace(first, last,
            in_function ? fmt::format("[[maybe_unused]] {0}(&{1}){2} = *reinterpret_cast<{0}(*){2}>("
                                      "plugfest_kernel_dynamic_shared());",
                                      type, name, bounds)
                        : fmt::format("[[maybe_unused]] static const ::plugfest::kernels::DynamicShared<{}> {}{{}};",
                                      type, name));
  }

  // kernel<<<grid, block, shared, stream>>>(arguments)
  void launch(std::size_t i) {
    if (i > 0 && is(i - 1, "operator")) return;  // operator<< <T>
    const std::size_t end = end_of_configuration(i);
    if (!is(end + 1, "(")) fail(end, "expected ( after >>>: the arguments of the kernel");
    const std::size_t callee = begin_of_callee(i);
    insert(callee, fmt::format("(::plugfest::kernels::configure({}), ", text_of(i + 1, end)));
    replace(i, end, "");
    insert_after(closing(end + 1), ")");
  }

  // The >>> of the <<< at i. Arguments of templates may end with >>> too.
  std::size_t end_of_configuration(std::size_t i) const {
    int open = 0;
    for (std::size_t at = i + 1; at < list_.size() && !is(at, ";"); ++at)
      if (is(at, "(") || is(at, "[") || is(at, "{"))
        at = closing(at);
      else if (is(at, "<"))
        ++open;
      else if (is(at, ">") && open > 0)
        --open;
      else if (is(at, ">>") && open > 1)
        open -= 2;
      else if (is(at, ">>>") && open > 2)
        open -= 3;
      else if (is(at, ">>>"))
        return at;
    fail(i, "this <<< has no >>>");
  }

  // The first token of the expression before the <<< at i: a name with template arguments and namespaces, or (f).
  std::size_t begin_of_callee(std::size_t i) const {
    std::size_t at = i;  // the token after what is left to read
    while (true) {
      if (at == 0) fail(i, "expected the name of a kernel before <<<");
      if (is(at - 1, ">") || is(at - 1, ">>")) at = opening_angle(at - 1, i);
      while (at > 0 && (is(at - 1, "]") || is(at - 1, ")"))) at = opening(at - 1);
      if (at > 0 && is_identifier(at - 1))
        --at;
      else if (!is(at, "("))
        fail(i, "expected the name of a kernel before <<<");
      if (at > 0 && is(at - 1, "template")) --at;
      if (at == 0 || !(is(at - 1, "::") || is(at - 1, ".") || is(at - 1, "->"))) return at;
      --at;
      const bool continues = at > 0 && (is_identifier(at - 1) || is(at - 1, ">") || is(at - 1, ">>"));
      if (is(at, "::") && (!continues || is(at - 1, "return") || is(at - 1, "else") || is(at - 1, "do"))) return at;
    }
  }
  std::size_t opening_angle(std::size_t i, std::size_t launch) const {
    int open = 0;
    for (std::size_t at = i + 1; at-- > 0;) {
      if (is(at, ")") || is(at, "]") || is(at, "}"))
        at = opening(at);
      else if (is(at, ">"))
        ++open;
      else if (is(at, ">>"))
        open += 2;
      else if (is(at, "<"))
        --open;
      else if (is(at, ";"))
        break;
      if (open == 0) return at;
    }
    fail(launch, "the template arguments before <<< have no <");
  }

  // asm volatile("text" : outputs : inputs : clobbers);
  void assembly(std::size_t i) {
    const Token& token = list_[i];
    const std::string& file = tokens_.files[token.file];
    if (token.system && file.find("nccl") == file.npos) return;
    std::size_t open = i + 1;
    while (is(open, "volatile") || is(open, "__volatile__") || is(open, "__volatile")) ++open;
    if (!is(open, "(")) return;
    const std::size_t close = closing(open);
    AsmStatement statement;
    statement.file = file;
    statement.line = token.line;
    std::size_t at = open + 1;
    for (; at < close && list_[at].kind == Kind::kString; ++at) statement.text += string_value(list_[at].text);
    // The text of x86 ends without a semicolon; so does the name in `int f() asm("name");`.
    std::string_view end = statement.text;
    while (!end.empty() && std::string_view(" \t\n}").find(end.back()) != std::string_view::npos) end.remove_suffix(1);
    if (!end.ends_with(';')) return;
    if (!read_operands(at, close, statement)) fail(i, "this asm statement has operands that cannot be read");
    const std::optional<std::string> code = translate(statement);
    replace(i, close, code ? fmt::format("do {{ {}}} while (false)", *code) : unknown(statement));
  }

  // A statement that the compiler reports if it generates code for it.
  std::string unknown(const AsmStatement& statement) {
    const std::string message = fmt::format("asm \"{}\": this PTX instruction is not emulated", statement.text);
    return fmt::format("do {{ extern __attribute__((error({0}))) void {1}(); {1}(); }} while (false)", literal(message),
                       fmt::format("plugfest_unknown_ptx_{}", unknown_++));
  }

  // Reads from the first colon at `at` up to the ) at `close`.
  bool read_operands(std::size_t at, std::size_t close, AsmStatement& statement) const {
    std::size_t section = 0;
    while (at < close) {
      if (is(at, ":")) {
        ++section, ++at;
      } else if (is(at, "::")) {
        section += 2, ++at;
      } else if (is(at, ",")) {
        ++at;
      } else if (section > 2 && list_[at].kind == Kind::kString) {
        ++at;  // a clobber
      } else if ((section == 1 || section == 2) && list_[at].kind == Kind::kString && is(at + 1, "(")) {
        const std::size_t end = closing(at + 1);
        statement.operands.push_back({string_value(list_[at].text), text_of(at + 2, end)});
        if (section == 1) ++statement.outputs;
        at = end + 1;
      } else {
        return false;
      }
    }
    return true;
  }

  std::string edited() {
    std::stable_sort(edits_.begin(), edits_.end(), [](const Edit& a, const Edit& b) { return a.offset < b.offset; });
    std::string result;
    result.reserve(text_.size() + text_.size() / 16);
    std::size_t at = 0;
    for (const Edit& edit : edits_) {
      if (edit.offset < at) continue;  // inside a replaced part
      result += text_.substr(at, edit.offset - at);
      result += edit.text;
      at = edit.offset + edit.length;
    }
    result += text_.substr(at);
    return result;
  }

  std::string_view text_;
  Tokens tokens_;
  const std::vector<Token>& list_;
  std::vector<Edit> edits_;
  std::vector<bool> blocks_;              // for each open {: whether it is a namespace
  std::vector<std::string_view> arrays_;  // of extern __shared__ outside functions
  int unknown_ = 0;
};

}  // namespace

std::string rewrite(std::string_view text) { return Rewriter(text).run(); }

}  // namespace plugfest::kernels::front
