// Environment: environment variables, folders and terminals, as the commands use them.
//
// Filled once by main.cpp, the only place that reads argv, environment variables and terminals;
// passed down as a value. Immutable afterwards.
#pragma once

#include <map>
#include <string>

namespace paceline {

struct Environment {
    std::string model;       // PACELINE_MODEL: used where -m is not given; may be empty
    std::string method;      // PACELINE_METHOD: used where no method is given; may be empty
    std::string pretrained;  // PACELINE_PRETRAINED: a folder with trained parts; may be empty
    std::map<std::string, std::string> variables;  // all PACELINE_*, by name: serve_settings.hpp
    std::map<std::string, std::string> starter;    // of srun, mpirun, torchrun: cluster/starter.hpp
    std::string cache_folder;  // the demo model, packed copies (packed_cache.hpp); empty: none
    std::string hub_cache;     // where other programs keep models of the Hugging Face hub
    bool stdin_is_terminal = false;
    bool stdout_is_terminal = false;
    bool stderr_is_terminal = false;
    bool terminal_moves = false;  // TERM: its cursor can be moved
};

/// Where launch/fetch_model puts the demo model; empty: there is no cache folder.
[[nodiscard]] std::string demo_model_path(const Environment& environment);

}  // namespace paceline
