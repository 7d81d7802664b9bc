// The library of the mutants of tuner v6, whose base plugin is libtuner-toy.so in its folder.
#include "conformance/mutants/calls_table.h"

using TunerTable = plugfest::mutants::Table<plugfest::plugin::InterfaceKind::kTuner, 6, 4>;
PLUGFEST_EXPORT TunerTable ncclTunerPlugin_v6;
TunerTable ncclTunerPlugin_v6;
