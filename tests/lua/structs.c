/* Prints "struct field number" for every public struct: its size ("-") and the offsets of its
 * fields, as this compiler lays them out. */
#include <stdio.h>

#include "moelua/moelua.h"

static const struct {
  const char *type, *field;
  size_t value;
} rows[] = {
#include "structs.inc"
};

int main(void) {
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    printf("%s %s %zu\n", rows[i].type, rows[i].field[0] ? rows[i].field : "-", rows[i].value);
  }
  return 0;
}
