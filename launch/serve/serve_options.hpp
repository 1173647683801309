// ServeOptions: what `paceline serve` is asked for on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/base/model_options.hpp"

namespace paceline {

struct ServeOptions {
    ModelOptions model = {};
    std::string config_file = {};  // --config
    std::string method = {};       // auto, plain or a pipeline's; empty: not given
    std::string draft_model = {};  // --draft-model
    std::string gpus = {};         // --gpus: "0,2" or "all"; empty: as --device or the file says
    std::string host = "127.0.0.1";
    int port = 8080;  // 0: a free one
    std::string key_file = {};
    std::vector<std::string> origins = {};  // --cors-origin
    std::string alias = {};
    int requests = 4;             // answers that decode at a time
    std::uint64_t kv_memory = 0;  // bytes of the target's KV caches; 0: a context for each of them
    int queue = 64;               // answers that wait beside those
    double drain_s = -1.0;        // below 0: as the pipeline says
    double keep_alive_s = 10.0;   // between two comments of a stream that waits
    std::string log_file = {};
    bool verbose = false;
};

}  // namespace paceline
