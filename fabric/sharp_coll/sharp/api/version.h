/* The version of the SHARP API that sharp_coll.h describes. Programs choose code by SHARP_API. */
#ifndef PLUGFEST_SHARP_API_VERSION_H
#define PLUGFEST_SHARP_API_VERSION_H

#define SHARP_MAJOR_BIT 24
#define SHARP_MINOR_BIT 16

/* A version as one number, which grows with the version. */
#define SHARP_VERSION(major, minor) (((major) << SHARP_MAJOR_BIT) | ((minor) << SHARP_MINOR_BIT))

#define SHARP_API SHARP_VERSION(3L, 10L)

#endif
