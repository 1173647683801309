// stage_main: the life of a stage process, from its control descriptor to its exit code.
#pragma once

namespace paceline {

/// Joins the conductor on `control_fd`, runs the actors of its assignment, and returns when it is
/// told to stop. The result is the exit code; errors have been reported to the conductor.
[[nodiscard]] int stage_main(int control_fd);

}  // namespace paceline
