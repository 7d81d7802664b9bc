/* All of the SHARP API, for programs that include its common header, such as UCC. */
#ifndef PLUGFEST_SHARP_API_SHARP_H
#define PLUGFEST_SHARP_API_SHARP_H

#include "sharp_coll.h"
#include "version.h"

#endif
