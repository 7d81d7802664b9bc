// Runs the schedules of GIN and RMA.
#pragma once

#include "conformance/model/player.h"
#include "conformance/model/schedule.h"
#include "harness/control/one_sided.h"

namespace plugfest::model {

/// Runs a schedule of GIN or RMA on ranks that are connected, with kContexts contexts if the version has contexts. Each
/// rank posts its operations in their order. Adds to `played`; a deviation has no evidence.
/// Errors: as control::OneSidedGroup::deliver().
void play_operations(control::OneSidedGroup& group, const Schedule& schedule, Played& played);

}  // namespace plugfest::model
