// Gives all ranks the ncclUniqueId of rank 0 over TCP.
#pragma once

#include <nccl.h>

/// The values that the launcher passes in environment variables with the names of torchrun.
struct Launch {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;
  const char* master_address = "127.0.0.1";
  const char* master_port = "29500";
};

/// Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.
Launch read_launch();

/// Returns the id that rank 0 creates. Ends the process with a message if a system call fails.
ncclUniqueId exchange_id(const Launch& launch);
