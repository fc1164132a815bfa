/* What LLVM's coverage instrumentation calls when the program starts: it tells src/coverage.rs where the counters are.
 * Every object calls it, with the same section's bounds. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void __sanitizer_cov_8bit_counters_init(uint8_t *begin, uint8_t *end)
{
	char text[64];

	snprintf(text, sizeof(text), "%ju %ju", (uintmax_t)(uintptr_t)begin, (uintmax_t)(uintptr_t)end);
	setenv("CROFT_FUZZ_COUNTERS", text, 1);
}
