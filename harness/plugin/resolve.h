// Which file NCCL would load for a name in NCCL_NET_PLUGIN.
//
// Source: NCCL 2.28.9, src/plugin/plugin_open.cc (openPluginLib, tryOpenLib), src/plugin/net.cc
// (initPluginLibsOnceFunc).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plugfest::plugin {

/// The names of a value of NCCL_NET_PLUGIN, in the order in which core tries them. Null pointer (unset) is
/// "libnccl-net.so"; "none" in any letter case is no plugin. Of a list separated by commas, empty names, names of 255
/// characters and more, and those after the fourteenth are left out.
std::vector<std::string> plugin_names(const char* value);

/// What core hands to dlopen for one name, in order: the name itself; then, unless it holds a "/" or has the form
/// lib*.so, libnccl-net-<name>.so.
std::vector<std::string> file_names(const std::string& name);

/// True for the names that make core look into the main program: any beginning of "STATIC_PLUGIN", in any letter case.
bool names_main_program(const std::string& name);

/// Where dlopen would find `file_name`, or empty. With a "/" it is a path. Else the folders of LD_LIBRARY_PATH, the
/// loader's cache, and the system's library folders, in this order; files that are not libraries of this machine's kind
/// are passed over, as by the loader.
std::string find_library(const std::string& file_name);

/// The file that core would load for `name`: the first of file_names() that is found.
/// Errors: LoadError when there is none, with the places that were searched.
std::string resolve(const std::string& name);

}  // namespace plugfest::plugin
