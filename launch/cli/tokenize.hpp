// `paceline tokenize`: text to token ids and back.
#pragma once

#include <string>

#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/model_options.hpp"
#include "launch/base/text_input.hpp"

namespace paceline {

struct TokenizeOptions {
    ModelOptions model;
    TextSource source;
    std::string format = "table";  // table, ids, json
    bool plain_text = false;       // control tokens in the text are only characters
    bool decode = false;           // the text is token ids
};

Command add_tokenize(Command& app, TokenizeOptions& options);
int run_tokenize(const TokenizeOptions& options, const Environment& environment);

}  // namespace paceline
