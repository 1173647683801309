// `paceline datastore`: texts to a datastore, for drafts with source = "datastore"
// (actors/decoding/guesses/datastore.hpp).
#pragma once

#include <string>
#include <vector>

#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/model_options.hpp"

namespace paceline {

struct DatastoreOptions {
    ModelOptions model;
    std::vector<std::string> files;  // texts, or *.jsonl; "-" is standard input
    std::string output;
    bool plain_text = false;  // control tokens in the text are only characters
};

Command add_datastore(Command& app, DatastoreOptions& options);
int run_datastore(const DatastoreOptions& options, const Environment& environment);

}  // namespace paceline
