// The plugin that the user named: which file it is, which versions it has; checked before anything is built.
#pragma once

#include <string>
#include <vector>

namespace plugfest::cli {

struct Plugin {
  /// What ranks load: a file's absolute path, or "nccl:IB".
  std::string load;
  /// The library's file; empty for a transport built into NCCL.
  std::string library;
  /// Net versions it has, newest first.
  std::vector<int> apis;
};

/// `named`: a path, a name as in NCCL_NET_PLUGIN, "nccl:IB", "nccl:Socket", or empty for the bundled mesh plugin.
/// Errors: std::runtime_error that says in a plugin author's words why it cannot be used.
Plugin find_plugin(const std::string& named);

/// The versions to run: `asked` is "" (the newest), "v8", "8" or "all". Errors: std::runtime_error.
std::vector<int> choose_apis(const Plugin& plugin, const std::string& asked);

/// How the user called this program: "scripts/plugfest".
const std::string& program_as_typed();
/// To be called once, at the start of main.
void set_program_as_typed(const std::string& program);

/// A word for the shell: as it is, or in single quotes.
std::string shell_word(const std::string& word);

}  // namespace plugfest::cli
