#include "harness/cli/options/nic_option.h"

namespace plugfest::cli {

void NicOption::add_options(Command command) {
  command.add_option("--nic", kind, "Kind of NIC: " + bed::describe_nic_kinds()).type_name("KIND");
  command
      .add_option("--kernel", options.kernel,
                  "With --nic vm: a kernel image, or a folder with boot/ and lib/modules/; default: the distribution's")
      .type_name("PATH");
  command.add_flag("--allow-host-changes", options.allow_host_changes,
                   "With --nic rxe: load the kernel module for the duration of the run");
}

}  // namespace plugfest::cli
