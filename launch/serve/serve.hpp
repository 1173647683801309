// `paceline serve`: a model behind OpenAI's HTTP API, until a signal ends it.
#pragma once

#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"
#include "launch/serve/serve_options.hpp"

namespace paceline {

Command add_serve(Command& app, ServeOptions& options);
int run_serve(const ServeOptions& given, const Environment& environment);

}  // namespace paceline
