// plugfest nvcc: compiles CUDA sources for the CPU; their kernels may use NCCL's device API.
#include <string>
#include <vector>

#include "harness/bed/test_bed.h"
#include "harness/cli/command.h"
#include "harness/kernels/front/compile.h"
#include "harness/plugin/nccl.h"

namespace plugfest::cli {
namespace {

int compile(const std::vector<std::string>& words) {
  const kernels::front::CommandLine line = kernels::front::parse(words);
  const std::string folder = bed::library_folder();
  return kernels::front::compile(line, {folder + "/kernels", folder + "/nccl", plugin::find_nccl()});
}

}  // namespace

void add_nvcc(Command program) {
  Command command = program.add_subcommand(
      "nvcc", "Compile CUDA sources whose kernels use NCCL's device API for the CPU",
      "plugfest nvcc KERNEL.cu -o PROGRAM takes the options of nvcc: -o, -c, -I, -D, -U, -L, -l, -O, -g, -std, -W, -f, "
      "-m, -include, -isystem, -MD, -MF, -MT, -shared, -x cu, -Xcompiler, -Xlinker and -ccbin. It ignores options that "
      "choose a GPU or tune its code, such as -arch and -gencode. Default: -O2 -g -std=c++17. --keep FOLDER keeps the "
      "preprocessed and the rewritten source of each input; --print-commands prints each command. It needs a C++ "
      "compiler, the CUDA headers, and NCCL. Run the program with plugfest nccl exec. Exit code: 0 on success; 2 "
      "otherwise.");
  command.keep_rest();
  command.set_body([command] { return compile(command.rest()); });
}

}  // namespace plugfest::cli
