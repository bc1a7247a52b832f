"""The saving of a large table: each change in a journal, and the file behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rmqstore.broker.metadata.shared_table import LargeTable
from rmqstore.net.runtime import Runtime
from rmqstore.store.folder import FolderLike
from rmqstore.store.metadata.journaled import JournaledFile, JournaledTable

__all__ = ["LargeTableFile"]


class LargeTableFile:
    """The file of *table* below *root*, and its journal. Saves that are requested while one runs
    share the next one."""

    def __init__(self, root: FolderLike, table: LargeTable, runtime: Runtime) -> None:
        self._table = table
        self._runtime = runtime
        self._file: JournaledFile[JournaledTable] = JournaledFile(root, table.file_type)
        self._replacing = runtime.lock()
        """Held while the file is replaced; before `_saving`."""
        self._saving = runtime.lock()
        """Held while a change goes to the journal."""
        self._requested = 0
        self._done = 0
        self._is_own = False
        """Whether this process wrote the present file."""
        self.has_failed = False
        """Whether the last save failed: the disk lacks changes that are in effect."""

    def load(self) -> None:
        """Let the table have what the file and the journal hold. Raises CorruptionError,
        DiskError."""
        self._table.take_whole(self._file.load())
        self._table.loaded()

    async def save(self) -> None:
        """Return when the disk has the table, as it is now or later, durably. Raises DiskError."""
        self._requested += 1
        own = self._requested
        async with self._saving:
            if self._done >= own:
                return
            if self._file.takes_changes and not self._table.is_replaced:
                await self._append()
                return

        async with self._replacing, self._saving:
            if self._done < own:
                await self._write()

    async def _append(self) -> None:
        covered, change = self._requested, self._table.change_to_save()
        if change is not None:
            with self._replaced_unless_done():
                await self._runtime.on_disk(lambda: self._file.append(change))
        self._done, self.has_failed = covered, False

    async def _write(self) -> None:
        """Writes the file, while changes wait."""
        covered, file = self._requested, self._file
        whole, has = self._table.whole_to_save(), file.change_count
        with self._replaced_unless_done():
            content = await self._runtime.in_thread(lambda: whole.to_json().encode())

            def replace() -> None:
                file.announce(content, has=has)
                file.write(content, is_own=self._is_own)
                file.restart(content, has=has)

            await self._runtime.on_disk(replace)
        self._is_own, self._done, self.has_failed = True, covered, False

    @contextmanager
    def _replaced_unless_done(self) -> Iterator[None]:
        """Have the table written whole by the next save, unless the block succeeds: what was taken
        from it to be saved is in no later change."""
        self.has_failed = True
        try:
            yield
        except BaseException:
            self._table.is_replaced = True
            raise

    async def write_behind(self) -> None:
        """Bring the file up to the journal, while changes go on. Raises DiskError."""
        async with self._replacing:
            file = self._file
            async with self._saving:
                if not file.lacks_changes and not self.has_failed:
                    return
                if not file.takes_changes or self._table.is_replaced:
                    await self._write()
                    return
                whole, has = self._table.saved(), file.change_count

            content = await self._runtime.in_thread(lambda: whole.to_json().encode())
            async with self._saving:
                await self._runtime.on_disk(lambda: file.announce(content, has=has))
            await self._runtime.in_thread(lambda: file.write(content, is_own=self._is_own))
            async with self._saving:
                await self._runtime.on_disk(lambda: file.restart(content, has=has))
            self._is_own = True
