#include <cstdlib>

#include <doctest/doctest.h>

#include "model/weights/model_file.hpp"
#include "tests/unit/tokenizer/fixtures.hpp"

namespace paceline {

TEST_CASE("the demo model's tokenizer agrees with the Hugging Face library on the whole corpus") {
    const char* path = std::getenv("PACELINE_DEMO_MODEL");
    if (path == nullptr) {
        MESSAGE("skipped: PACELINE_DEMO_MODEL does not name the demo model's GGUF file");
        return;
    }
    const Result<ModelFile> file = ModelFile::open(path);
    REQUIRE_MESSAGE(file.ok(), path);
    const TokenizerData& data = file.value().tokenizer();
    const Result<Tokenizer> tokenizer = Tokenizer::make(data);
    REQUIRE(tokenizer.ok());
    CHECK(tokenizer.value().vocab_size() == 49152);
    CHECK(tokenizer.value().end_tokens() == std::vector<TokenId>{0, 2});
    CHECK(!tokenizer.value().prompt_bos());
    fixtures::check_agreement(tokenizer.value(), "demo");
    fixtures::check_chat(tokenizer.value(), data, "demo");
}

}  // namespace paceline
