// A subcommand: what it adds to the command line, and what it does once the line is read.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace plugfest::cli {

/// What a subcommand's body returns: the program's exit code. It throws std::runtime_error for what the user is told in
/// one line, with exit code 2.
using Body = std::function<int()>;

/// Adds a subcommand; `chosen` is set to its body when the user gave it.
void add_run(CLI::App& app, Body& chosen);
void add_rules(CLI::App& app, Body& chosen);
void add_mutants(CLI::App& app, Body& chosen);
void add_fabric(CLI::App& app, Body& chosen);
void add_bench(CLI::App& app, Body& chosen);
void add_doctor(CLI::App& app, Body& chosen);

}  // namespace plugfest::cli
