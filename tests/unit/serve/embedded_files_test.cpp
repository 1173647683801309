#include "launch/serve/embedded_files.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

TEST_CASE("the page is one document whose policy names two digests") {
    const Reply page = page_reply();
    CHECK(page.body.starts_with("<!DOCTYPE html>"));
    CHECK(page.body.ends_with("</html>\n"));
    CHECK(page.body.find("<style>:root") != std::string::npos);
    CHECK(page.body.find("<script>\"use strict\"") != std::string::npos);
    CHECK(page.body.find("/* the scripts */") == std::string::npos);
    CHECK(page.fields.find("script-src 'sha256-") != std::string::npos);
    CHECK(page.fields.find("style-src 'sha256-") != std::string::npos);
    CHECK(page.fields.find("unsafe") == std::string::npos);
    CHECK(page.fields.ends_with("\r\n"));
}

TEST_CASE("the description of the API is JSON") {
    CHECK(nlohmann::json::parse(openapi_reply().body)["openapi"] == "3.1.0");
}

}  // namespace
}  // namespace paceline::serve
