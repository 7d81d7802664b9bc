// --nic, --kernel and --allow-host-changes.
#pragma once

#include <memory>
#include <string>

#include "harness/bed/nic_kind.h"
#include "harness/cli/command_line.h"

namespace plugfest::cli {

struct NicOption {
  std::string kind = bed::default_nic_kind()->name();
  bed::NicOptions options;

  void add_options(Command command);
  /// Errors: as bed::make_nic_kind().
  std::unique_ptr<bed::NicKind> make() const { return bed::make_nic_kind(kind, options); }
  /// Whether it is the kind that commands use by default.
  bool is_default() const { return kind == bed::default_nic_kind()->name(); }
};

}  // namespace plugfest::cli
