"""Pure functions from State to lines and rows; the panes and dialogs show them."""
