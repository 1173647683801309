// The exit codes of `paceline`, documented by --help and relied on by scripts.
#pragma once

namespace paceline {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;        // files, memory, a stage that died
inline constexpr int kExitUsage = 2;          // the command line
inline constexpr int kExitInterrupted = 130;  // Ctrl-C, as shells report it
inline constexpr int kExitTerminated = 143;   // SIGTERM, and the answer did not finish in time

}  // namespace paceline
