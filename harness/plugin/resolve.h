// Resolves names as NCCL resolves NCCL_NET_PLUGIN, and determines what a library requires to be loaded.
//
// Source: NCCL 2.28.9, src/plugin/plugin_open.cc (openPluginLib, tryOpenLib), src/plugin/net.cc
// (initPluginLibsOnceFunc).
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace plugfest::plugin {

/// The file names that NCCL passes to dlopen for one name, in order: the name itself; then libnccl-net-<name>.so,
/// unless the name contains a "/" or has the form lib*.so.
std::vector<std::string> file_names(const std::string& name);

/// True for names that make NCCL search the main program: prefixes of "STATIC_PLUGIN", in any letter case.
bool names_main_program(const std::string& name);

/// The path at which dlopen would find `file_name`; empty if it would not. A name with a "/" is a path. Others are
/// searched for in the folders of LD_LIBRARY_PATH, the loader's cache, and the system's library folders, in this order.
/// Like the loader, skips libraries for other architectures.
std::string find_library(const std::string& file_name);

/// The path of the file that NCCL would load for `name`: the first of file_names() that is found.
/// Errors: LoadError with the folders that were searched.
std::string resolve(const std::string& name);

/// For plugins built with AddressSanitizer or ThreadSanitizer: changes to the environment of a process that loads the
/// library at `path`: LD_PRELOAD with the runtime of its sanitizer, which must be loaded first, and options that make a
/// finding of the sanitizer abort the process. Options set by the user take precedence. Empty for a library without a
/// sanitizer, and in a build of plugfest with one, whose ranks contain the runtime. Errors: LoadError for a file that
/// is not a library, and for a library that needs a runtime and does not name it, as with clang.
std::vector<std::pair<std::string, std::string>> sanitizer_environment(const std::string& path);

}  // namespace plugfest::plugin
