// The reductions of cooperative groups, which are in cooperative_groups.h here.
#pragma once

#include "../cooperative_groups.h"
