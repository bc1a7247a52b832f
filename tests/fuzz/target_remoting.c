/* target_remoting.c -- the header of a remoting frame.
 *
 * An input: 1 for a binary header, else JSON (1), the header.
 */
#include "format/remoting_header.h"

#include <stdlib.h>

#include "fuzz.h"

/* The slice lies inside of the header, and what it says is no longer than it. */
static void check_text(const struct rmq_remoting_text *text, const uint8_t *data, size_t size)
{
    const uint8_t *start = (const uint8_t *)text->bytes.data;
    FUZZ_REQUIRE(start >= data && start <= data + size);
    FUZZ_REQUIRE(text->bytes.size <= (size_t)(data + size - start));
    if (!text->has_escapes)
        return;

    char *out = malloc(text->bytes.size + 1);
    FUZZ_REQUIRE(out != NULL);
    size_t written = 0;
    if (rmq_remoting_unescape(text->bytes, out, &written)) {
        FUZZ_REQUIRE(written < text->bytes.size);
        if (fuzz_is_utf8(start, text->bytes.size))
            FUZZ_REQUIRE(fuzz_is_utf8((const uint8_t *)out, written));
    }
    free(out);
}

void fuzz_remoting(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    bool is_binary = fuzz_take(&input, 1) == 1;
    uint8_t *header = fuzz_copy(input.data, input.left);

    struct rmq_remoting_header found;
    enum rmq_remoting_type type = is_binary ? RMQ_REMOTING_BINARY : RMQ_REMOTING_JSON;
    if (rmq_remoting_header_read(header, input.left, type, &found)) {
        FUZZ_REQUIRE(found.field_count <= RMQ_REMOTING_FIELDS_MAX);
        FUZZ_REQUIRE(found.has_fields || found.field_count == 0);
        for (size_t i = 0; i < found.field_count; ++i) {
            check_text(&found.fields[i].key, header, input.left);
            check_text(&found.fields[i].value, header, input.left);
        }
        if (found.remark.bytes.data != NULL)
            check_text(&found.remark, header, input.left);
        if (found.language_name.data != NULL)
            check_text(&(struct rmq_remoting_text){found.language_name, false}, header, input.left);
    }
    free(header);
}
