// The table of PTX instructions that are emulated, and their translation to calls of plugfest/ptx.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plugfest::kernels::front {

/// `"=r"(expression)`.
struct AsmOperand {
  std::string constraint;
  std::string expression;
};

/// One asm statement.
struct AsmStatement {
  std::string text;                  ///< the instructions; %% stands for %
  std::vector<AsmOperand> operands;  ///< outputs, then inputs
  std::size_t outputs = 0;
  std::string file;
  int line = 0;
};

/// Returns C++ statements with the effect of `statement`, each ending with a semicolon: the operands as variables, then
/// calls of functions in namespace plugfest::kernels::ptx. nullopt if an instruction is not in the table.
/// Source: PTX ISA 9.0, chapter 9.
std::optional<std::string> translate(const AsmStatement& statement);

/// `text` as a C++ string literal.
std::string literal(std::string_view text);

}  // namespace plugfest::kernels::front
