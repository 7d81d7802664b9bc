// --nic, --kernel and --allow-host-changes.
#pragma once

#include <memory>
#include <string>

#include "harness/cli/command_line.h"
#include "harness/testbed/nic_kind.h"

namespace plugfest::cli {

struct NicOption {
  std::string kind = testbed::default_nic_kind()->name();
  testbed::NicOptions options;

  void add_options(Command command);
  /// Errors: as testbed::make_nic_kind().
  std::unique_ptr<testbed::NicKind> make() const { return testbed::make_nic_kind(kind, options); }
  /// Whether it is the kind that commands use by default.
  bool is_default() const { return kind == testbed::default_nic_kind()->name(); }
};

}  // namespace plugfest::cli
